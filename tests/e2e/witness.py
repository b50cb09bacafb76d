"""Somebody outside the server who writes down what virtual machines read and what hosts suffer."""

import contextlib
import random
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from http.client import HTTPException
from pathlib import Path
from typing import Any

from tests.e2e.conftest import Server, VmClient

PAUSE = 0.5
"""Between two rounds, so that the server has time for other things."""


def now() -> float:
    """Return the real time, which the server and the scripts have, too."""
    return time.time()  # noqa: TID251 - documents and logs are compared with it


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line of the log of the scripts."""

    at: float
    operation: str
    host: str
    task: str
    attempt: int


def read_log(path: Path) -> list[Line]:
    """Return what the scripts have written so far."""
    try:
        words = [line.split() for line in path.read_text(encoding="utf-8").splitlines()]
    except FileNotFoundError:
        return []
    return [
        Line(at=float(at), operation=operation, host=host, task=task, attempt=int(attempt))
        for at, operation, host, task, attempt in words
    ]


@dataclass(slots=True, kw_only=True)
class Page:
    """A document of one scope, and when it was read for the first and the last time."""

    vm: str
    events: list[dict[str, Any]]
    first: float
    last: float


@dataclass(slots=True, kw_only=True)
class Sighting:
    """One event as documents showed it, from its first page to its last."""

    event: dict[str, Any]
    first: float
    last: float
    started: float | None = None

    @property
    def not_before(self) -> float:
        """When it was to start, at the earliest; nothing holds what was never Scheduled."""
        shown = self.event["NotBefore"]
        return parsedate_to_datetime(shown).timestamp() if shown else self.first


@dataclass(slots=True)
class Witness:
    """Polls for one virtual machine of each scope, again and again, and approves for some."""

    server: Server
    vms: list[str]
    approves: Callable[[str, Mapping[str, Any]], bool]
    closely: list[str] = field(default_factory=list)
    """Whose documents must not change twice within a round, however slow the machine is."""
    pages: list[Page] = field(default_factory=list)
    approvals: set[str] = field(default_factory=set)
    is_over: threading.Event = field(default_factory=threading.Event)
    failures: list[BaseException] = field(default_factory=list)
    _newest: dict[str, Page] = field(default_factory=dict)

    def watch(self) -> None:
        """Poll until it is over, whether or not the server is there."""
        with contextlib.closing(self.server.vm_client()) as client:
            while not self.is_over.wait(PAUSE):
                for number, vm in enumerate(list(self.vms)):
                    for each in (vm, *self.closely) if number % 10 == 0 else (vm,):
                        with contextlib.suppress(OSError, HTTPException):
                            self._poll(client, each)

    def _poll(self, client: VmClient, vm: str) -> None:
        sent = now()
        events = client.poll(vm).events
        page = self._newest.get(vm)
        if page is None or page.events != events:
            page = Page(vm=vm, events=events, first=now(), last=sent)
            self._newest[vm] = page
            self.pages.append(page)
        page.last = sent
        for event in events:
            is_new = event["EventId"] not in self.approvals
            if is_new and event["EventStatus"] == "Scheduled" and self.approves(vm, event):
                # It counts from when it is sent: the answer may be lost with the server.
                self.approvals.add(event["EventId"])
                client.approve(vm, event["EventId"])

    def find(self, vm: str, status: str) -> dict[str, Any] | None:
        """Return the event of *vm* that is shown with *status* now, if any."""
        page = self._newest.get(vm)
        shown = page.events if page else []
        return next((each for each in shown if each["EventStatus"] == status), None)

    def sightings(self) -> dict[str, Sighting]:
        """Return every event that was seen, by its id, as it was seen first."""
        seen: dict[str, Sighting] = {}
        for page in sorted(self.pages, key=lambda page: page.first):
            for event in page.events:
                found = seen.setdefault(
                    event["EventId"], Sighting(event=event, first=page.first, last=page.last)
                )
                found.last = max(found.last, page.last)
                if event["EventStatus"] == "Started" and found.started is None:
                    found.started = page.first
        return seen

    def changes(self) -> list[float]:
        """Return when a document was seen to be another."""
        return sorted(page.first for page in self.pages)


@dataclass(frozen=True, slots=True, kw_only=True)
class Saying:
    """What was said of a Maintenance, between two moments."""

    asked: float
    answered: float
    standstill: Mapping[str, Any]


@dataclass(slots=True)
class Questioner:
    """Asks why a Maintenance is where it is, at moments that nobody can know before."""

    server: Server
    path: str
    chance: random.Random
    sayings: list[Saying] = field(default_factory=list)
    is_over: threading.Event = field(default_factory=threading.Event)

    def ask_on(self) -> None:
        """Ask until it is over, whenever the server is there."""
        while not self.is_over.wait(self.chance.uniform(0.5, 3)):
            with contextlib.suppress(OSError, HTTPException):
                self.ask()

    def ask(self) -> Mapping[str, Any]:
        asked = now()
        answer = self.server.operate("GET", self.path)
        assert answer.status == 200, answer
        self.sayings.append(Saying(asked=asked, answered=now(), standstill=answer.json()))
        return self.sayings[-1].standstill


def most_at_once(spans: Iterable[tuple[float, float]]) -> int:
    """Return how many of *spans* have a moment in common, at the most."""
    edges = [edge for first, last in spans for edge in ((first, 1), (last, -1))]
    count = most = 0
    for _, step in sorted(edge for edge in edges):
        count += step
        most = max(most, count)
    return most
