"""Both clients against the real service."""

import threading
from collections.abc import Generator
from datetime import timedelta

import pytest
from tests.http.metadata.conftest import NOW, Service, running, wait_until
from tests.sdk.conftest import AnyClient, ClientMaker, Metadata, answer_with

from forewarn.client import (
    ChangeKind,
    EventId,
    EventStatus,
    EventType,
    Polled,
    RefusedError,
    UnavailableError,
)
from forewarn.protocol.versions import API_VERSIONS


@pytest.fixture
def service() -> Generator[Service]:
    with running() as started:
        yield started


@pytest.fixture
def client(make_client: ClientMaker, service: Service) -> AnyClient:
    return make_client(f"http://127.0.0.1:{service.port}/vm/web-0")


def test_document_and_events_are_what_the_service_publishes(
    client: AnyClient, service: Service
) -> None:
    assert client.events() == ()

    identifier = service.create(EventType.FREEZE, ("web-0",), description="Kernel update")

    document = client.document()
    (event,) = document.events
    assert document.document_incarnation == 1
    assert (event.event_id, event.event_type) == (identifier, EventType.FREEZE)
    assert event.description == "Kernel update"
    assert client.events() == document.events


def test_machine_knows_itself_and_its_events(client: AnyClient, service: Service) -> None:
    mine, another = service.create(), service.create(resources=("Web-1",))

    me = client.whoami()

    assert (me.name, me.update_domain, me.fault_domain) == ("web-0", 1, 1)
    affected = {event.event_id: event.affects(me) for event in client.events()}
    assert affected == {mine: True, another: False}


def test_approval_reaches_the_service(client: AnyClient, service: Service) -> None:
    first, second = service.create(), service.create()
    events = client.events()

    client.approve(events[0], events[1].event_id.lower())
    client.approve(events[0])

    assert service.approvers(first) == service.approvers(second) == ("web-0",)


def test_approving_an_unknown_event_is_refused(client: AnyClient) -> None:
    with pytest.raises(RefusedError, match="EventId is unknown"):
        client.approve("C7061BAC-AFDC-4513-B24B-AA5F13A16123")


def test_watch_follows_events_by_long_poll(client: AnyClient, service: Service) -> None:
    completed, canceled = service.create(EventType.FREEZE), service.create()
    changes = client.watch()
    assert {next(changes).event.event_id for _ in range(2)} == {completed, canceled}

    service.start(completed)
    started = next(changes)
    assert (started.kind, started.event.event_id) == (ChangeKind.STARTED, completed)
    assert started.event.event_status is EventStatus.STARTED

    service.complete(completed)
    change = next(changes)
    assert (change.kind, change.event) == (ChangeKind.COMPLETED, started.event)

    later = threading.Thread(target=lambda: cancel_when_parked(service, canceled))
    later.start()
    change = next(changes)
    assert (change.kind, change.event.event_id) == (ChangeKind.CANCELED, canceled)
    later.join()


def cancel_when_parked(service: Service, identifier: EventId) -> None:
    wait_until(lambda: service.parked == 1, "the watch is parked")
    service.cancel(identifier)


def test_every_api_version_can_be_read(make_client: ClientMaker, service: Service) -> None:
    identifier = service.create()
    endpoint = f"127.0.0.1:{service.port}/vm/web-0"

    for version in API_VERSIONS:
        client = make_client(endpoint, api_version=version.name)
        (event,) = client.events()
        client.approve(event)
        assert event.event_id == identifier, version.name
        assert event.not_before is not None, version.name


def test_ipv6_is_spoken(make_client: ClientMaker, service: Service) -> None:
    client = make_client(f"[::1]:{service.port_v6}/vm/solo")

    assert client.whoami().vm_id == "id-of-solo"


def test_stranger_is_told_what_the_server_says(make_client: ClientMaker, service: Service) -> None:
    client = make_client(f"127.0.0.1:{service.port}/vm/nobody", patience=0)

    with pytest.raises(UnavailableError, match="it answered 404, 'Not found'"):
        client.document()


def test_changes_are_told_since_the_events_that_are_known(
    client: AnyClient, service: Service
) -> None:
    service.create()
    known = client.events()
    new = service.create()

    (change,) = client.changes(known)

    assert (change.kind, change.event.event_id) == (ChangeKind.SCHEDULED, new)
    assert client.changes(client.events()) == ()
    assert client.endpoint == f"http://127.0.0.1:{service.port}/vm/web-0"


def test_watch_goes_on_from_known_events_and_is_observed(
    client: AnyClient, service: Service
) -> None:
    service.create()
    known = client.events()
    new = service.create()
    polls: list[Polled] = []

    change = next(iter(client.watch(known, observe=polls.append)))

    assert change.event.event_id == new
    assert [(polled.trouble, polled.document_incarnation) for polled in polls] == [(None, 2)]


def test_event_is_postponed_as_far_as_its_scope_allows(client: AnyClient, service: Service) -> None:
    service.create()
    (event,) = client.events()
    assert event.not_before is not None

    client.postpone(event, event.not_before + timedelta(minutes=1))
    with pytest.raises(RefusedError, match="409"):
        client.postpone(event, event.not_before + timedelta(days=9))

    (moved,) = client.events()
    assert moved.not_before == event.not_before + timedelta(minutes=1)


def test_plain_server_offers_no_postponing(metadata: Metadata, make_client: ClientMaker) -> None:
    metadata.script = [answer_with(b'{ "error": "Not found" }', 404)]

    with pytest.raises(RefusedError, match="does not support postponing"):
        make_client(metadata.endpoint).postpone("00000000-0000-4000-8000-000000000001", NOW)
