"""Typical uses of the SDK, which a type checker must accept. Nothing here is run."""

from datetime import UTC, datetime
from typing import assert_type

from forewarn.client import (
    AsyncClient,
    Change,
    ChangeKind,
    Client,
    Document,
    Event,
    EventId,
    EventSource,
    EventStatus,
    EventType,
    Identity,
    Polled,
    RefusedError,
    UnavailableError,
)


def poll_and_approve() -> None:
    with Client() as client:
        assert_type(client, Client)
        assert_type(client.document(), Document)
        assert_type(client.events(), tuple[Event, ...])
        client.approve(*client.events())
        client.approve("C7061BAC-AFDC-4513-B24B-AA5F13A16123")
        client.approve()
        assert_type(client.changes(client.events()), tuple[Change, ...])
        client.postpone("C7061BAC-AFDC-4513-B24B-AA5F13A16123", datetime(2027, 1, 4, tzinfo=UTC))


def follow_from(known: tuple[Event, ...], seen: list[Polled]) -> None:
    client = Client()
    for change in client.watch(known, observe=seen.append):
        assert_type(client.endpoint, str | None)
        assert_type(change, Change)


def follow() -> None:
    client = Client("http://127.0.0.1:8169/vm/web-0", api_version="2019-08-01", timeout=5)
    me = client.whoami()
    assert_type(me, Identity)
    assert_type(me.update_domain, int | None)
    for change in client.watch():
        assert_type(change, Change)
        match change.kind:
            case ChangeKind.SCHEDULED if change.event.affects(me):
                client.approve(change.event)
            case ChangeKind.COMPLETED | ChangeKind.CANCELED | ChangeKind.GONE:
                client.close()
            case _:
                pass


async def follow_async() -> None:
    async with AsyncClient("127.0.0.1:8169", patience=0.5) as client:
        assert_type(client, AsyncClient)
        assert_type(await client.document(), Document)
        assert_type(await client.events(), tuple[Event, ...])
        assert_type(await client.whoami(), Identity)
        async for change in client.watch():
            assert_type(change.kind, ChangeKind)
            await client.approve(change.event, change.event.event_id)


def look_at(event: Event) -> bool:
    assert_type(event.event_id, EventId)
    assert_type(event.event_type, EventType | str)
    assert_type(event.event_status, EventStatus | str)
    assert_type(event.event_source, EventSource | str | None)
    assert_type(event.not_before, datetime | None)
    return event.affects("web-0") and event.event_type in {EventType.REBOOT, "SomethingNew"}


def report(client: Client) -> str:
    try:
        client.document()
    except UnavailableError as error:
        return f"{error.endpoint}: {error.trouble}"
    except RefusedError as error:
        return f"{error.status}: {error.sentence}"
    return ""
