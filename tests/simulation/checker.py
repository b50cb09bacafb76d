"""What must never happen, checked by code that shares nothing with the service.

It knows the fleet as it was declared, sees what really runs, the bytes that machines are shown, and
who approved what. A simulation also has it look at the rows of each commit; of real processes it
reads the documents in the order of their incarnations. No rule of forewarn is imported here.
"""

import json
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import Any, Final, Protocol

_LATEST_BEGIN: Final = 12_000_000
"""How long after a pause something may begin that was permitted before it, in microseconds."""
NOTICE: Final = {"Reboot": 15 * 60, "Freeze": 15 * 60, "Redeploy": 10 * 60}
"""The seconds between the announcement of a platform event and its NotBefore, at least."""
TOLERANCE: Final = 2_000_000
"""How far the clock of a leader may be ahead of the database's, in microseconds."""
_IN_FLIGHT: Final = """
SELECT event_id, event_status, event_source, scope_id, resources, not_before, maintenance_id,
  event_type, is_published
FROM events WHERE event_status IN ('Scheduled', 'Started')
"""
_SUCCEEDED: Final = """
SELECT operation_id, host FROM host_operations WHERE outcome = 'succeeded' AND NOT EXISTS
  (SELECT 1 FROM tasks WHERE subject = operation_id AND state = 'settled')
"""
_NEWEST_DOCUMENTS: Final = """
SELECT scope_id, max(document_incarnation), body FROM documents GROUP BY scope_id
"""


class Found(Protocol):
    """What a statement has found."""

    def fetchone(self) -> Any: ...

    def fetchall(self) -> list[Any]: ...


class Rows(Protocol):
    """The database of the service, in words of SQLite."""

    def execute(self, statement: str, values: Sequence[object] = (), /) -> Found: ...


class Observed(Protocol):
    """The time of what is looked at, and where a violation is written down."""

    @property
    def now(self) -> int: ...

    def note(self, who: str, what: str) -> None: ...


class Violation(BaseException):
    """Something happened that must never happen. No part of the service may catch it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A virtual machine as it was declared."""

    name: str
    scope: str
    domain: int
    host: str


@dataclass(slots=True, kw_only=True)
class Model:
    """The fleet and the orders, as they were given to the service."""

    machines: dict[str, Machine]
    approval: dict[str, str]
    """By scope: any, all or leader."""
    min_available: dict[str, int] = field(default_factory=dict)
    """By Maintenance: the percentage of each set that stays in service."""
    speed: int = 1
    """By how much notice is shorter than on a real fleet."""


class Checker(ABC):
    """Keeps a model of its own, and raises a Violation."""

    tolerance = TOLERANCE

    def __init__(self, world: Observed, driver: Rows, model: Model, unix: int) -> None:
        self.world = world
        self.driver = driver
        self.model = model
        self.unix = unix
        self.members: dict[str, list[str]] = defaultdict(list)
        for machine in model.machines.values():
            self.members[machine.scope].append(machine.name)
        self.on_host: dict[str, list[str]] = defaultdict(list)
        for machine in model.machines.values():
            self.on_host[machine.host].append(machine.name)
        self.begun: dict[tuple[str, str], str] = {}
        self.running: dict[tuple[str, str], tuple[str, ...]] = {}
        self.done: set[tuple[str, str]] = set()
        self.approved: dict[str, set[str]] = defaultdict(set)
        self.by_operator: set[str] = set()
        self.statuses: dict[str, str] = {}
        self.started: dict[str, tuple[str, tuple[str, ...]]] = {}
        self.bytes_of: dict[tuple[str, int], bytes] = {}
        self.seen: dict[tuple[str, str], int] = {}
        self.acknowledged: dict[tuple[str, str], Any] = {}
        self.paused_since: int | None = None
        """Since when the server is paused, as an operator was told."""
        self.polls = 0

    def fail(self, sentence: str) -> None:
        self.world.note("CHECKER", sentence)
        raise Violation(sentence)

    # Tasks.

    def task_begins(self, key: tuple[str, str], server: str) -> None:
        """Note that something really begins outside."""
        if key in self.begun:
            self.fail(f"{'/'.join(key)} begins twice, on {self.begun[key]} and {server}")
        self.begun[key] = server
        if self.paused_since is not None and self.world.now - self.paused_since > _LATEST_BEGIN:
            self.fail(f"{'/'.join(key)} begins on {server} during a pause")
        row = self.driver.execute(
            "SELECT state, node, vm, host FROM tasks WHERE subject = ? AND name = ?", key
        ).fetchone()
        if row is None or not self._is_begun(server, row):
            self.fail(f"{'/'.join(key)} begins on {server}, but is recorded as {row}")
        _, _, vm, host = row
        touched: tuple[str, ...] = (vm,) if vm else tuple(self.on_host[host])
        if key[1].startswith("verify"):
            touched = ()
        self.running[key] = touched
        twice = [
            other
            for other, names in self.running.items()
            if other != key and set(names) & set(touched)
        ]
        if twice:
            self.fail(f"{'/'.join(key)} and {'/'.join(twice[0])} touch the same machine")
        self.check_domains(self.started)

    def task_ends(self, key: tuple[str, str], said: str = "") -> None:
        self.running.pop(key, None)
        if said == "done":
            self.done.add(key)

    @abstractmethod
    def _is_begun(self, server: str, row: tuple[Any, ...]) -> bool:
        """Tell whether a task of which this *row* is recorded may have begun on *server*."""

    # Events.

    def _check_notice(self, event_id: str, kind: str, not_before: int) -> None:
        notice = not_before - self.world.now
        if notice + self.tolerance < NOTICE[kind] * 1_000_000 // self.model.speed:
            self.fail(f"{event_id} is announced {notice / 1_000_000} s before NotBefore")

    def _check_capacity(self, maintenance: str, scope: str, out: set[str]) -> None:
        members = self.members[scope]
        if len(members) < 2 or scope.startswith("virtual-machine/"):
            return
        touched = {name for names in self.running.values() for name in names}
        away = (out | touched) & set(members)
        available = len(members) - len(away)
        if available * 100 < self.model.min_available.get(maintenance, 0) * len(members):
            self.fail(f"{maintenance} leaves {available} of {len(members)} in {scope}")

    def _check_start(self, event_id: str, scope: str, names: list[str], not_before: int) -> None:
        if self.world.now + self.tolerance >= not_before or event_id in self.by_operator:
            return
        given = self.approved[event_id]
        enough = {
            "any": bool(given & set(self.members[scope])),
            "all": set(names) <= given,
            "leader": names[0] in given,
        }[self.model.approval[scope]]
        if not enough:
            self.fail(f"{event_id} starts before NotBefore, approved by {sorted(given)}")

    def check_domains(self, started: Mapping[str, tuple[str, tuple[str, ...]]]) -> None:
        """Fail if two update domains of a scope are out of service by platform work."""
        domains: dict[str, set[int]] = defaultdict(set)
        out = {name for names in self.running.values() for name in names}
        out.update(name for _, names in started.values() for name in names)
        for name in sorted(out):
            machine = self.model.machines[name]
            domains[machine.scope].add(machine.domain)
        for scope, found in domains.items():
            if len(found) > 1:
                self.fail(f"update domains {sorted(found)} of {scope} are out: {sorted(out)}")

    # Documents.

    def is_shown(self, machine: str, server: str, content: bytes) -> dict[str, Any]:
        """Check the bytes that *machine* read from one start of a *server*; return the document."""
        self.polls += 1
        document: dict[str, Any] = json.loads(content)
        scope, number = self.model.machines[machine].scope, document["DocumentIncarnation"]
        if number < self.seen.get((machine, server), 0):
            self.fail(f"{machine} reads incarnation {number} after {self.seen[machine, server]}")
        self.seen[machine, server] = number
        known = self.bytes_of.get((scope, number))
        if known == content:
            return document
        if known is not None:
            self.fail(f"{scope} shows two documents of incarnation {number}")
        self.bytes_of[scope, number] = content
        before = self.bytes_of.get((scope, number - 1))
        if before is not None and json.loads(before)["Events"] == document["Events"]:
            self.fail(f"incarnation {number} of {scope} shows the same events as the one before")
        members = set(self.members[scope])
        for event in document["Events"]:
            if not set(event["Resources"]) <= members:
                self.fail(f"{machine} reads of {event['Resources']}, which are not in {scope}")
        if number > 1:
            row = self.driver.execute(
                "SELECT body FROM documents WHERE scope_id = ? AND document_incarnation = ?",
                [scope, number],
            ).fetchone()
            if row is None:
                self.fail(f"incarnation {number} of {scope} was shown and is not in the history")
            if bytes(row[0]) != content:
                self.fail(f"incarnation {number} of {scope} is another one in the history")
        return document

    def is_current(self, machine: str, content: bytes) -> bool:
        """Tell whether *content* is the newest document of *machine*."""
        scope, number = self.model.machines[machine].scope, json.loads(content)
        newest = self.driver.execute(
            "SELECT max(document_incarnation) FROM documents WHERE scope_id = ?", [scope]
        ).fetchone()[0]
        return bool(newest is None or number["DocumentIncarnation"] == newest)

    # Writes that were acknowledged.

    def approval_is_asked(self, vm: str, event_id: str) -> None:
        self.approved[event_id].add(vm)

    def approval_is_acknowledged(self, vm: str, event_id: str) -> None:
        row = self.driver.execute(
            "SELECT started_at, ended_at FROM events WHERE event_id = ?", [event_id]
        ).fetchone()
        over_at = row and (row[0] or row[1])
        if self._has_approval(vm, event_id):
            self.acknowledged["approval", f"{vm} {event_id}"] = (vm, event_id)
        elif not over_at or self.world.now + self.tolerance < over_at - self.unix:
            # Once an event has started, an approval is accepted and has no effect.
            self.fail(f"the approval of {event_id} by {vm} was acknowledged and is not there")

    def maintenance_is_acknowledged(self, maintenance_id: str) -> None:
        self.acknowledged["maintenance", maintenance_id] = maintenance_id

    def check_acknowledged(self) -> None:
        """Fail if a write is gone that was acknowledged.

        Approvals stay with their event after its end; only a new NotBefore would void them, and
        nobody here asks for one.
        """
        for (kind, key), what in self.acknowledged.items():
            if kind == "approval" and not self._has_approval(*what):
                self.fail(f"the acknowledged approval {key} is gone")
            if kind == "maintenance":
                row = self.driver.execute(
                    "SELECT 1 FROM maintenances WHERE maintenance_id = ?", [what]
                ).fetchone()
                if row is None:
                    self.fail(f"the acknowledged maintenance {key} is gone")

    def _has_approval(self, vm: str, event_id: str) -> bool:
        row = self.driver.execute(
            "SELECT approvals FROM events WHERE event_id = ?", [event_id]
        ).fetchone()
        return row is not None and f'"{vm}"' in row[0]


class CommitChecker(Checker):
    """Looks at the rows of each commit, too: only who simulates the database can."""

    def __init__(self, world: Observed, driver: Rows, model: Model, unix: int) -> None:
        super().__init__(world, driver, model, unix)
        self.grants: list[tuple[str, int]] = []
        self.ledger_seen = 0
        self.not_before: dict[str, int] = {}
        self._newest: dict[str, tuple[int, bytes, dict[str, Any]]] = {}
        """By scope: the newest document that was looked at, and its events."""
        self._next = self.statuses, self.started
        """Both of these, once the transaction under way is committed."""

    def _is_begun(self, server: str, row: tuple[Any, ...]) -> bool:
        state, node, *_ = row
        return bool(state == "begun" and node.startswith(f"{server}:"))

    def check_hosts(self, *, except_for: set[str]) -> None:
        """Fail if a host has succeeded without a check, and without the word of an operator."""
        for operation_id, host in self.driver.execute(_SUCCEEDED).fetchall():
            has_work = (operation_id, "work") in self.done
            is_verified = any(
                subject == operation_id and name.startswith("verify") for subject, name in self.done
            )
            if has_work and not is_verified and host not in except_for:
                self.fail(f"{host} has succeeded, but was not verified after {operation_id}/work")

    # Leaders.

    def lease_is_gained(self, server: str, epoch: int) -> None:
        if self.grants and epoch <= self.grants[-1][1]:
            self.fail(f"{server} gains epoch {epoch} after {self.grants[-1]}")
        self.grants.append((server, epoch))

    # Commits.

    def commits(self, server: str, *, has_documents: bool, has_ledger: bool) -> None:
        """Look at what *server* is about to commit."""
        if has_ledger:
            self._check_leader(server)
        if has_documents or has_ledger:
            self._check_documents(self._check_events())

    def _check_leader(self, server: str) -> None:
        rows = self.driver.execute(
            "SELECT sequence, who FROM ledger WHERE sequence > ?", [self.ledger_seen]
        ).fetchall()
        by_leader = any(who == "scheduler" for _, who in rows)
        if by_leader and (not self.grants or self.grants[-1][0] != server):
            self.fail(f"{server} decides, but the lease is with {self.grants[-1:]}")

    def transaction_begins(self) -> None:
        """Note what is committed so far."""
        self._next = self.statuses, self.started
        self.ledger_seen = (
            self.driver.execute("SELECT max(sequence) FROM ledger").fetchone()[0] or 0
        )

    def transaction_is_done(self) -> None:
        """Note that what was looked at last is committed."""
        self.statuses, self.started = self._next

    def _check_events(self) -> list[Any]:
        """Look at the events in flight; return their rows."""
        statuses = dict(self.statuses)
        found = self.driver.execute(_IN_FLIGHT).fetchall()
        started: dict[str, tuple[str, tuple[str, ...]]] = {}
        in_flight: dict[str, set[str]] = defaultdict(set)
        for event_id, status, source, scope, resources, *_ in found:
            names = tuple(json.loads(resources))
            in_flight[scope].update(names)
            if status == "Started" and source == "Platform":
                started[event_id] = (scope, names)
        for event_id, status, source, scope, resources, not_before, maintenance, kind, _ in found:
            before = self.statuses.get(event_id)
            if not_before < self.not_before.setdefault(event_id, not_before):
                self.fail(f"the NotBefore of {event_id} is earlier than it was announced")
            if before == status:
                continue
            names = json.loads(resources)
            if before is None and status == "Scheduled" and source == "Platform" and maintenance:
                self._check_capacity(maintenance, scope, in_flight[scope])
                self._check_notice(event_id, kind, not_before - self.unix)
                self._check_is_not_paused(event_id, maintenance)
            if status == "Started" and before is not None and source == "Platform":
                self._check_start(event_id, scope, names, not_before - self.unix)
            statuses[event_id] = status
        self._next = statuses, started
        self.check_domains(started)
        return found

    def _check_is_not_paused(self, event_id: str, maintenance: str) -> None:
        row = self.driver.execute(
            "SELECT is_paused FROM maintenances WHERE maintenance_id = ?", [maintenance]
        ).fetchone()
        if row[0]:
            self.fail(f"{event_id} is announced, but {maintenance} is paused")

    def _check_documents(self, found: list[Any]) -> None:
        """Fail unless the newest document of each scope shows its events in flight."""
        expected: dict[str, dict[str, Any]] = defaultdict(dict)
        for event_id, status, _, scope, resources, not_before, *_, is_published in found:
            if is_published:
                moment = "" if status == "Started" else not_before // 1_000_000
                expected[scope][event_id] = (status, json.loads(resources), moment)
        shown = {
            scope: self._read_events(scope, number, body)
            for scope, number, body in self.driver.execute(_NEWEST_DOCUMENTS).fetchall()
        }
        for scope in sorted(expected.keys() | shown.keys()):
            if expected.get(scope, {}) != shown.get(scope, {}):
                self.fail(f"{scope} shows {shown.get(scope)} instead of {expected.get(scope)}")

    def _read_events(self, scope: str, number: int, body: bytes) -> dict[str, Any]:
        known = self._newest.get(scope)
        if known is not None and known[:2] == (number, body):
            return known[2]
        events = {
            event["EventId"]: (
                event["EventStatus"],
                event["Resources"],
                event["NotBefore"] and int(parsedate_to_datetime(event["NotBefore"]).timestamp()),
            )
            for event in json.loads(bytes(body))["Events"]
        }
        self._newest[scope] = number, body, events
        return events


class HistoryChecker(Checker):
    """Looks at what was written down of real processes, after their end.

    It knows of events what the documents say. A document is looked at when it, or a newer one of
    its scope, is read for the first time; so events are taken for younger than they are.
    """

    def __init__(
        self, world: Observed, driver: Rows, model: Model, unix: int, *, tolerance: int
    ) -> None:
        super().__init__(world, driver, model, unix)
        self.tolerance = tolerance
        self.looked_at: dict[str, int] = defaultdict(int)
        self.not_before: dict[str, int] = {}

    def _is_begun(self, server: str, row: tuple[Any, ...]) -> bool:
        del server
        return row[0] in {"ended", "settled"}

    def is_shown(self, machine: str, server: str, content: bytes) -> dict[str, Any]:
        document = super().is_shown(machine, server, content)
        scope, newest = self.model.machines[machine].scope, document["DocumentIncarnation"]
        for number in range(self.looked_at[scope] + 1, newest + 1):
            row = self.driver.execute(
                "SELECT body FROM documents WHERE scope_id = ? AND document_incarnation = ?",
                [scope, number],
            ).fetchone()
            if row is None:
                self.fail(f"incarnation {number} of {scope} is not in the history")
            self._look_at(scope, json.loads(bytes(row[0]))["Events"])
            self.looked_at[scope] = number
        return document

    def _look_at(self, scope: str, events: list[dict[str, Any]]) -> None:
        in_flight = {name for event in events for name in event["Resources"]}
        started = {}
        for event in events:
            key, status, names = event["EventId"], event["EventStatus"], event["Resources"]
            before = self.statuses.get(key)
            if before is None and status == "Scheduled":
                moment = parsedate_to_datetime(event["NotBefore"]).timestamp()
                self.not_before[key] = int(moment) * 1_000_000 - self.unix
                self._check_notice(key, event["EventType"], self.not_before[key])
                row = self.driver.execute(
                    "SELECT maintenance_id FROM events WHERE event_id = ?", [key]
                ).fetchone()
                self._check_capacity(row[0], scope, in_flight)
            if before == "Scheduled" and status == "Started":
                self._check_start(key, scope, names, self.not_before[key])
            if status == "Started":
                started[key] = (scope, tuple(names))
            self.statuses[key] = status
        # What runs is left out: a document is read a while after it was written.
        domains = {
            self.model.machines[name].domain for _, them in started.values() for name in them
        }
        if len(domains) > 1:
            self.fail(f"{scope} shows work on update domains {sorted(domains)}: {started}")
