"""/events/watch over real sockets: many watchers, slow ones, and servers that come and go."""

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import islice
from typing import Any

import httpx2
import pytest
import uvicorn
from fastapi import FastAPI

from forewarn.connections.limits import Streams
from forewarn.desk.ledger_watch import LedgerWatch
from forewarn.ports.store import Store, StoreUnavailableError

TIMEOUT = 45.0
TOKEN = "open-sesame"  # noqa: S105
HEADERS = {"Authorization": f"Bearer {TOKEN}"}
# One for all: making a client takes longer than all that it is used for here.
CLIENT = httpx2.Client(
    headers=HEADERS,
    timeout=TIMEOUT,
    trust_env=False,
    limits=httpx2.Limits(max_connections=None, max_keepalive_connections=0),
)
REBOOT = {"event_type": "Reboot", "resources": ["solo"]}


@contextmanager
def serving(app: FastAPI, ledger_watch: LedgerWatch, port: int = 0) -> Iterator[str]:
    config = uvicorn.Config(app, lifespan="off", log_config=None)
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", port)) as listener:
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        wait_until(lambda: server.started, "the server to start")
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}/api/v1/events"
        finally:
            ledger_watch.stop()
            server.should_exit = True
            thread.join(TIMEOUT)
            assert not thread.is_alive(), "the server did not stop while it was watched"


def wait_until(is_so: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + TIMEOUT
    while not is_so():
        assert time.monotonic() < deadline, f"waited too long for {what}"
        time.sleep(0.005)


@pytest.fixture
def events(app: FastAPI, ledger_watch: LedgerWatch) -> Iterator[str]:
    """The address of /events on a real socket."""
    with serving(app, ledger_watch) as address:
        yield address


@contextmanager
def watching(address: str, token: str = TOKEN, **query: object) -> Iterator[Iterator[str]]:
    headers = {"Authorization": f"Bearer {token}"}
    asked = CLIENT.stream("GET", f"{address}/watch", params=query, headers=headers)  # type: ignore[arg-type]
    with asked as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        yield answer.iter_lines()


def take(lines: Iterator[str], number: int) -> list[dict[str, Any]]:
    """Return the next *number* ledger lines, and see that each has its place as its id."""
    taken: list[dict[str, Any]] = []
    place = ""
    while len(taken) < number:
        line = next(lines)
        if line.startswith("id: "):
            place = line.removeprefix("id: ")
        if line.startswith("data: "):
            taken.append(json.loads(line.removeprefix("data: ")))
            assert place == str(taken[-1]["sequence"])
    return taken


def create(api: httpx2.Client, **order: object) -> str:
    (event,) = api.post("events", json={**REBOOT, **order}).json()["events"]
    return str(event["event_id"])


def test_watcher_sees_everything_that_happens_from_now_on(api: httpx2.Client, events: str) -> None:
    create(api, resources=["web-1"])
    with watching(events) as lines:
        next(lines)
        event_id = create(api, description="Übung")
        api.post(f"events/{event_id}/approve")

        scheduled, approved = take(lines, 2)

    assert scheduled == {
        "sequence": 2,
        "event_id": event_id,
        "event_type": "Reboot",
        "scope_id": "virtual-machine/solo",
        "resources": ["solo"],
        "at": "2026-01-05T08:00:00Z",
        "what": "scheduled",
        "who": "alice",
        "where": "testclient",
        "detail": "",
    }
    assert (approved["what"], approved["sequence"]) == ("approved", 3)


@pytest.mark.parametrize("narrow", ["vm", "event_id"])
def test_watch_can_be_narrowed_down(api: httpx2.Client, events: str, narrow: str) -> None:
    create(api, resources=["web-0"])
    wanted = create(api)
    query = {"vm": "SOLO"} if narrow == "vm" else {"event_id": wanted.lower()}
    with watching(events, after=0, **query) as lines:
        create(api, resources=["web-1"])
        api.post(f"events/{wanted}/cancel")

        assert [line["what"] for line in take(lines, 2)] == ["scheduled", "canceled"]


@pytest.fixture
def secret_of_web(api: httpx2.Client) -> str:
    """The token of somebody who may see web, and nothing else."""
    order = {"name": "web-team", "role": "viewer", "scopes": ["web"]}
    return str(api.post("tokens", json=order).json()["secret"])


def test_limited_token_watches_its_scopes(
    api: httpx2.Client, events: str, secret_of_web: str
) -> None:
    other = create(api)
    with watching(events, secret_of_web, after=0) as lines:
        own = create(api, resources=["web-0"])
        api.post(f"events/{other}/cancel")
        api.post(f"events/{own}/cancel")

        seen = take(lines, 2)

    assert [(line["what"], line["resources"]) for line in seen] == [
        ("scheduled", ["web-0"]),
        ("canceled", ["web-0"]),
    ]
    query, headers = {"event_id": other}, {"Authorization": f"Bearer {secret_of_web}"}
    assert api.get("events/watch", params=query, headers=headers).status_code == 404


def test_watch_ends_with_its_token(api: httpx2.Client, events: str, secret_of_web: str) -> None:
    with watching(events, secret_of_web) as lines:
        next(lines)
        assert api.delete("tokens/web-team").status_code == 200
        create(api, resources=["web-0"])

        rest = list(islice(lines, 300))

    assert len(rest) < 300, "it went on without a token"
    assert not [line for line in rest if line.startswith("data: ")], "it was told something"


def test_event_that_never_existed_cannot_be_watched(api: httpx2.Client) -> None:
    answer = api.get("events/watch", params={"event_id": "602D9444-D2CD-49C7-8624-8643E7171297"})

    assert answer.status_code == 404


def test_place_that_is_none_is_refused(api: httpx2.Client) -> None:
    assert api.get("events/watch", params={"after": "-1"}).status_code == 422
    assert api.get("events/watch", headers={"Last-Event-ID": "x"}).status_code == 422


def test_place_beyond_the_end_is_the_end(api: httpx2.Client, events: str) -> None:
    create(api)
    with watching(events, after=1000) as lines:
        next(lines)
        create(api, resources=["web-0"])

        assert take(lines, 1)[0]["sequence"] == 2


def test_last_event_id_goes_before_the_query(api: httpx2.Client, events: str) -> None:
    for vm in ("solo", "web-0", "web-1"):
        create(api, resources=[vm])
    with (
        httpx2.Client(headers={**HEADERS, "Last-Event-ID": "2"}, trust_env=False) as client,
        client.stream("GET", f"{events}/watch", params={"after": 0}) as answer,
    ):
        assert take(answer.iter_lines(), 1)[0]["sequence"] == 3


def test_heart_beat_carries_the_place_past_what_was_not_wanted(
    api: httpx2.Client, events: str
) -> None:
    with watching(events, vm="solo") as lines:
        create(api, resources=["web-0"])

        while next(lines) != "id: 1":
            pass


def test_hundred_watchers_see_the_same_and_share_the_reading(
    api: httpx2.Client, app: FastAPI, events: str, ledger_watch: LedgerWatch
) -> None:
    app.state.services = replace(app.state.services, streams=Streams(100))
    threads = threading.active_count()
    with ExitStack() as stack:
        watchers = [stack.enter_context(watching(events)) for _ in range(100)]
        wait_until(lambda: ledger_watch.watchers == 100, "every watcher")
        event_id = create(api)

        seen = [take(lines, 1)[0]["event_id"] for lines in watchers]

        assert seen == [event_id] * 100
        assert threading.active_count() - threads < 50, "a watcher needs no thread of its own"
    wait_until(lambda: ledger_watch.watchers == 0, "the watchers to be forgotten")


def test_slow_reader_holds_nobody_up_and_misses_nothing(api: httpx2.Client, events: str) -> None:
    number = 200
    with watching(events) as slow, watching(events) as quick:
        for count in range(number):
            event_id = create(api, description="x" * 4096, started=True)
            api.post(f"events/{event_id}/complete", json={"reason": "y" * 4096})
            if count % 50 == 49:
                take(quick, 100)

        sequences = [line["sequence"] for line in take(slow, 2 * number)]

    assert sequences == list(range(1, 2 * number + 1))


def test_watch_goes_on_after_a_restart_without_loss_or_repetition(
    api: httpx2.Client, app: FastAPI, ledger_watch: LedgerWatch, store: Store
) -> None:
    with serving(app, ledger_watch) as address, watching(address, after=0) as lines:
        create(api)
        (first,) = take(lines, 1)
    create(api, resources=["web-0"])
    again = LedgerWatch(store)
    store.listen(again.note)
    app.state.services = replace(app.state.services, ledger_watch=again)

    with serving(app, again) as address, watching(address, after=first["sequence"]) as lines:
        create(api, resources=["web-1"])

        assert [line["sequence"] for line in take(lines, 2)] == [2, 3]


def test_watch_ends_when_the_server_stops(app: FastAPI, ledger_watch: LedgerWatch) -> None:
    with ExitStack() as stack, serving(app, ledger_watch) as address:
        lines = stack.enter_context(watching(address))
        next(lines)
        ledger_watch.stop()

        list(lines)


def test_watch_ends_when_the_store_is_away(app: FastAPI, store: Store) -> None:
    class Away:
        def __getattr__(self, name: str) -> object:
            return getattr(store, name)

        def read(self, look: object) -> object:
            raise StoreUnavailableError(f"{look} cannot be read now.")

    ledger_watch = LedgerWatch(Away())  # type: ignore[arg-type]
    app.state.services = replace(app.state.services, ledger_watch=ledger_watch)
    with serving(app, ledger_watch) as address, watching(address) as lines:
        assert [line for line in lines if line][-1] == "id: 0"
