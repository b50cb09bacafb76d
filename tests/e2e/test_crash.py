"""Kill -9 at any moment: what was acknowledged is there, and nothing happens twice."""

import contextlib
import json
import random
import sqlite3
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from http.client import HTTPException
from typing import Any

from tests.e2e.conftest import (
    ANSWER_SECONDS,
    START_SECONDS,
    Client,
    Server,
    ServerMaker,
    VmClient,
    wait_until,
)

VERSIONS = ("2020-07-01", "2017-11-01")
SCOPES: Mapping[str, str] = {
    "web-0": "availability-set/web",
    "web-1": "availability-set/web",
    "web-2": "availability-set/web",
    "solo-0": "virtual-machine/solo-0",
    "solo-1": "virtual-machine/solo-1",
}
RANKS: Mapping[str, int] = {"Scheduled": 0, "Started": 1, "Completed": 2, "Canceled": 2}
SPEED = 20
"""Notice is 30 s or more, so that no approval comes too late; a Preempt is over in 3 s."""


@dataclass(slots=True)
class Promises:
    """All that the server has acknowledged and shown, noted by several threads."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    statuses: dict[str, str] = field(default_factory=dict)
    approvals: set[tuple[str, str]] = field(default_factory=set)
    fleet: dict[str, str | None] = field(default_factory=dict)
    pages: dict[tuple[str, str, int], bytes] = field(default_factory=dict)
    newest: dict[str, int] = field(default_factory=dict)

    def event(self, event: Mapping[str, Any]) -> None:
        """Note an event as an answer showed it."""
        with self.lock:
            self.statuses[event["event_id"]] = event["event_status"]

    def approval(self, event_id: str, vm: str) -> None:
        with self.lock:
            self.approvals.add((event_id, vm))

    def poll(self, client: VmClient, vm: str, version: str) -> None:
        """Poll; a document must not be older, nor other, than one that was seen before."""
        scope = SCOPES[vm]
        with self.lock:
            newest = self.newest.get(scope, 0)
        answer = client.poll(vm, version)
        incarnation = answer.incarnation
        with self.lock:
            known = self.pages.setdefault((scope, version, incarnation), answer.body)
            self.newest[scope] = max(self.newest.get(scope, 0), incarnation)
        assert incarnation >= newest, f"{scope} went back from {newest} to {incarnation}"
        assert answer.body == known, f"{scope} has two documents {incarnation}"


@dataclass(slots=True)
class Load:
    """Clients that change and poll as fast as they can, until the server is killed."""

    server: Server
    promises: Promises
    chance: random.Random
    is_killed: threading.Event = field(default_factory=threading.Event)

    def run_until_killed(self, seconds: float) -> None:
        """Kill the server after *seconds* of load."""
        clients = (self._drive_events, self._drive_events, self._change_fleet, self._poll)
        with ThreadPoolExecutor(len(clients)) as pool:
            # Each has dice of its own: what one does must not depend on how fast another is.
            running = [
                pool.submit(self._until_killed, client, random.Random(self.chance.random()))  # noqa: S311 - dice
                for client in clients
            ]
            time.sleep(seconds)
            self.is_killed.set()
            self.server.kill()
            for client in running:
                client.result(ANSWER_SECONDS)

    def _until_killed(
        self,
        client: Callable[[Client, VmClient, random.Random], None],
        chance: random.Random,
    ) -> None:
        operator, vm = self.server.operator_client(), self.server.vm_client()
        try:
            while not self.is_killed.is_set():
                client(operator, vm, chance)
        except (OSError, HTTPException):
            if not self.is_killed.is_set():
                raise
        finally:
            operator.close()
            vm.close()

    def _drive_events(self, operator: Client, vm: VmClient, chance: random.Random) -> None:
        event_type = chance.choice(("Freeze", "Reboot", "Redeploy", "Preempt"))
        order = {
            "event_type": event_type,
            "resources": chance.sample(sorted(SCOPES), chance.randint(1, 3)),
        }
        created = _ask(operator, "events", order, 201)["events"]
        for event in created:
            self.promises.event(event)
        if event_type == "Preempt":
            return  # lives and ends by itself
        for event in created:
            self._drive(operator, vm, event, chance.choice(("cancel", "approve", "complete")))

    def _drive(self, operator: Client, vm: VmClient, event: Mapping[str, Any], fate: str) -> None:
        path = f"events/{event['event_id']}"
        if fate == "cancel":
            self.promises.event(_ask(operator, f"{path}/cancel", {"reason": "load"}, 200))
            return
        # Any virtual machine of the scope may approve.
        name = next(name for name, scope in SCOPES.items() if scope == event["scope_id"])
        answer = vm.approve(name, event["event_id"])
        assert answer.status == 200, answer
        self.promises.approval(event["event_id"], name)
        if fate == "complete":
            self._complete(operator, path)

    def _complete(self, operator: Client, path: str) -> None:
        # The scheduler starts what is approved; 409 until it has.
        deadline = time.monotonic() + ANSWER_SECONDS
        while (answer := operator.ask("POST", f"/api/v1/{path}/complete")).status == 409:
            assert time.monotonic() < deadline, f"{path} was approved and is not started"
            time.sleep(0.005)
        assert answer.status == 200, answer
        self.promises.event(answer.json())

    def _change_fleet(self, operator: Client, _: VmClient, chance: random.Random) -> None:
        name = f"extra-{chance.randrange(5)}"
        known = self.promises.fleet.pop(name, None)
        if known is not None and chance.random() < 0.3:
            answer = operator.ask("DELETE", f"/api/v1/virtual-machines/{name}")
            assert answer.status == 200, answer
            self.promises.fleet[name] = None
            return
        tag = str(chance.random())
        declared = {"virtual_machine": [{"name": name, "tags": {"tag": tag}}]}
        _ask(operator, "fleet", {"fleet": declared}, 200)
        self.promises.fleet[name] = tag

    def _poll(self, _: Client, vm: VmClient, chance: random.Random) -> None:
        self.promises.poll(vm, chance.choice(sorted(SCOPES)), chance.choice(VERSIONS))


def _ask(operator: Client, path: str, body: object, status: int) -> Any:
    answer = operator.ask("POST", f"/api/v1/{path}", body)
    assert answer.status == status, answer
    return answer.json()


def test_whatever_was_acknowledged_survives_kill_9(start_server: ServerMaker, kills: int) -> None:
    chance = random.Random(20_261_115)  # noqa: S311 - dice, not secrets
    promises = Promises()
    server = start_server("--executor", "simulated", "--speed", str(SPEED))

    for _ in range(kills):
        known = set(promises.statuses)
        Load(server, promises, chance).run_until_killed(chance.uniform(0.05, 0.5))
        server.start()
        _check_answers(server, promises, set(promises.statuses) - known)
        _check_file(server, promises)

    assert len(promises.statuses) > kills, "there was no load"


def _check_answers(server: Server, promises: Promises, news: set[str]) -> None:
    with contextlib.closing(server.vm_client()) as vm:
        for name in SCOPES:
            for version in VERSIONS:
                promises.poll(vm, name, version)
    with contextlib.closing(server.operator_client()) as operator:
        for event_id in news:
            answer = operator.ask("GET", f"/api/v1/events/{event_id}")
            assert answer.status == 200, answer
            _check_status(event_id, promises.statuses[event_id], answer.json()["event_status"])
        shown = operator.ask("GET", "/api/v1/virtual-machines").json()["virtual_machines"]
    tags = {vm["name"]: vm["tags"].get("tag") for vm in shown}
    for name, tag in promises.fleet.items():
        assert tags.get(name) == tag, f"{name} is not as it was acknowledged"


def _check_status(event_id: str, promised: str, found: str | None) -> None:
    assert found is not None, f"{event_id} was acknowledged as {promised} and is lost"
    is_at_least = found == promised or RANKS[found] > RANKS[promised]
    assert is_at_least, f"{event_id} was acknowledged as {promised} and is {found}"


def _check_file(server: Server, promises: Promises) -> None:
    with contextlib.closing(_open(server)) as database:
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        database.execute("BEGIN")  # one snapshot, the server is running
        found = dict(database.execute("SELECT event_id, event_status FROM events"))
        for event_id, status in promises.statuses.items():
            _check_status(event_id, status, found.get(event_id))
        ledger = database.execute("SELECT event_id, who FROM ledger WHERE what = 'approved'")
        assert promises.approvals <= set(ledger), "an approval is lost"
        _check_nothing_twice(database)
        _check_documents_show_the_events(database)


def _check_nothing_twice(database: sqlite3.Connection) -> None:
    twice = """
        SELECT event_id, what FROM ledger WHERE what <> 'approved'
        GROUP BY event_id, what HAVING count(*) > 1
        UNION ALL SELECT event_id, 'ends twice' FROM ledger WHERE what IN ('completed', 'canceled')
        GROUP BY event_id HAVING count(*) > 1
    """
    assert database.execute(twice).fetchall() == []
    without_a_trace = """
        SELECT event_id FROM events WHERE event_id NOT IN (SELECT event_id FROM ledger)
        UNION ALL SELECT event_id FROM events WHERE event_id NOT IN (SELECT subject FROM audit)
        UNION ALL SELECT event_id FROM ledger WHERE event_id NOT IN (SELECT event_id FROM events)
        UNION ALL SELECT subject FROM tasks WHERE subject NOT IN (SELECT event_id FROM events)
    """
    assert database.execute(without_a_trace).fetchall() == []


def _check_documents_show_the_events(database: sqlite3.Connection) -> None:
    """Events and documents change in one transaction, so they agree whenever one looks."""
    bodies = database.execute(
        "SELECT body, max(document_incarnation) FROM documents GROUP BY scope_id"
    )
    shown = {
        (event["EventId"], event["EventStatus"])
        for body, _ in bodies
        for event in json.loads(body)["Events"]
    }
    in_flight = database.execute(
        "SELECT event_id, event_status FROM events "
        "WHERE event_status IN ('Scheduled', 'Started') AND is_published"
    )
    assert shown == set(in_flight)


def _open(server: Server) -> sqlite3.Connection:
    return sqlite3.connect(f"{server.database.as_uri()}?mode=ro", uri=True, isolation_level=None)


def test_simulated_impact_that_is_interrupted_ends_once(start_server: ServerMaker) -> None:
    server = start_server("--executor", "simulated", "--speed", "600")  # a Reboot takes a second
    event_ids = []

    for seconds in (0.0, 0.3):
        (event,) = server.create("Reboot", "solo-0", started=True)
        event_ids.append(event["event_id"])
        time.sleep(seconds)
        server.kill()
        server.start()

    for event_id in event_ids:
        server.wait_for(event_id, "Completed")
        story = [entry["what"] for entry in server.event(event_id)["ledger"]]
        assert story == ["started", "completed"]
    with contextlib.closing(_open(server)) as database:
        tasks = database.execute("SELECT subject, name, state, assignment FROM tasks").fetchall()
    assert sorted(tasks) == sorted((event_id, "solo-0", "ended", 1) for event_id in event_ids)


def test_event_that_fell_due_while_the_server_was_dead_starts_when_it_is_back(
    start_server: ServerMaker,
) -> None:
    server = start_server("--executor", "simulated", "--speed", "600")  # notice is 1.5 s
    (event,) = server.create("Reboot", "web-0")

    server.kill()
    time.sleep(1)
    server.start()

    server.wait_for(event["event_id"], "Completed")
    assert server.poll("web-0").events == []


def test_server_that_is_killed_while_it_makes_its_database_starts_again(
    make_server: ServerMaker,
) -> None:
    server = make_server()
    server.launch()
    wait_until(server.database.exists, "no database is made", START_SECONDS, pause=0.001)

    server.kill()
    server.start()

    assert server.poll("web-0").events == []
    with contextlib.closing(_open(server)) as database:
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_request_that_was_not_answered_is_done_once_when_it_is_repeated(
    start_server: ServerMaker,
) -> None:
    server = start_server()
    answered: dict[str, bytes] = {}
    asked: set[str] = set()

    def announce_until_killed(number: int) -> None:
        with (
            contextlib.closing(server.operator_client()) as operator,
            contextlib.suppress(OSError, HTTPException),
        ):
            for count in range(10_000):
                key = f"{number}-{count}"
                asked.add(key)
                answered[key] = _announce(operator, key)

    with ThreadPoolExecutor(4) as pool:
        running = [pool.submit(announce_until_killed, number) for number in range(4)]
        wait_until(lambda: len(answered) > 40, "nothing was answered", ANSWER_SECONDS)
        server.kill()
        for client in running:
            client.result(ANSWER_SECONDS)
    server.start()

    with contextlib.closing(server.operator_client()) as operator:
        again = {key: _announce(operator, key) for key in asked}
    assert {key: again[key] for key in answered} == answered
    with contextlib.closing(_open(server)) as database:
        done = database.execute("SELECT description, count(*) FROM events GROUP BY description")
        assert dict(done) == dict.fromkeys(asked, 1)
    assert len(asked) > len(answered), "every request was answered before the kill"


def _announce(operator: Client, key: str) -> bytes:
    order = {"event_type": "Reboot", "resources": ["solo-0"], "description": key}
    answer = operator.ask("POST", "/api/v1/events", order, {"Idempotency-Key": key})
    assert answer.status == 201, answer
    return answer.body
