"""What clients of real servers write down, and the checker of the simulation that reads it."""

import contextlib
import json
import random
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path
from typing import Any, Final, Protocol

import psycopg
from psycopg.types.string import TextLoader
from tests.e2e.witness import now
from tests.simulation.checker import HistoryChecker, Model

_TOLERANCE: Final = 5_000_000
"""How many microseconds after its commit a document may be read for the first time."""


@dataclass(frozen=True, slots=True)
class Note:
    """What happened *at* a moment."""

    at: float
    what: str
    words: tuple[Any, ...]


@dataclass(slots=True)
class History:
    """What clients saw and did. Several threads write it."""

    notes: list[Note] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def write(self, what: str, *words: object) -> None:
        with self._lock:
            self.notes.append(Note(now(), what, words))

    def count(self, what: str) -> int:
        return sum(each.what == what for each in self.notes)

    def add_tasks(self, witness: Path) -> None:
        """Add what scripts have written: begin or end, the id of their task, and when."""
        for line in witness.read_text(encoding="utf-8").splitlines():
            what, task_id, at = line.split()
            subject, _, name = task_id.partition("/")
            self.notes.append(Note(float(at), what, ((subject, name),)))


class Source(Protocol):
    """A server or a relay, as virtual machines reach it."""

    @property
    def name(self) -> str:
        """What it is called, with the number of its start."""

    def poll(self, vm: str) -> bytes: ...

    def approve(self, vm: str, event_id: str) -> bool: ...


@dataclass(slots=True)
class Reader:
    """Polls one *source* for its virtual machines, and approves some of what it reads."""

    source: Source
    vms: Sequence[str]
    history: History
    chance: random.Random
    approved: set[tuple[str, str]] = field(default_factory=set)

    def read(self, is_over: threading.Event) -> None:
        """Read until it *is_over*, whether or not the source is there."""
        while not is_over.wait(0.05):
            for vm in self.vms:
                with contextlib.suppress(OSError, HTTPException):
                    self._read(vm)

    def _read(self, vm: str) -> None:
        name = self.source.name
        body = self.source.poll(vm)
        if self.source.name != name:
            return  # it was started again meanwhile, and either may have answered
        self.history.write("shown", vm, name, body)
        for event in json.loads(body)["Events"]:
            key = event["EventId"]
            if event["EventStatus"] != "Scheduled" or (vm, key) in self.approved:
                continue
            if self.chance.random() < 0.2:
                self.approved.add((vm, key))
                self.history.write("asks", vm, key)
                if self.source.approve(vm, key):
                    self.history.write("approves", vm, key)


class Database:
    """PostgreSQL in words of SQLite; a moment is a whole number in both."""

    def __init__(self, connection: "psycopg.Connection[Any]") -> None:
        self._cursor = connection.cursor()
        for kind in ("json", "jsonb"):
            self._cursor.adapters.register_loader(kind, TextLoader)  # as it is written

    def execute(self, statement: str, values: Sequence[object] = ()) -> "psycopg.Cursor[Any]":
        return self._cursor.execute(statement.replace("?", "%s").encode(), values)


class _Replayed:
    """The time of what is read again."""

    def __init__(self) -> None:
        self.now = 0

    def note(self, who: str, what: str) -> None:
        """The violation says it."""


def check(history: History, rows: Any, model: Model) -> HistoryChecker:
    """Have the checker look at all that was written down, in the order of time."""
    world = _Replayed()
    checker = HistoryChecker(world, rows, model, 0, tolerance=_TOLERANCE)
    steps: dict[str, Callable[..., object]] = {
        "begin": lambda key: checker.task_begins(key, "a server"),
        "end": checker.task_ends,
        "shown": checker.is_shown,
        "asks": checker.approval_is_asked,
        "approves": checker.approval_is_acknowledged,
        "starts": checker.maintenance_is_acknowledged,
    }
    for each in sorted(history.notes, key=lambda each: each.at):
        world.now = int(each.at * 1_000_000)
        steps[each.what](*each.words)
    checker.check_acknowledged()
    if checker.running:
        checker.fail(f"{sorted(checker.running)} did not end")
    return checker
