"""The checker finds each lie in what was written down of a service."""

import json
import sqlite3
from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Any, Final

import pytest
from tests.e2e.histories import History, Note, check
from tests.simulation.checker import Machine, Model, Violation

SCOPE: Final = "availability-set/web"
MACHINES: Final = ("web-0", "web-1", "web-2")
BEGIN: Final = 1_800_000_000
MINUTE: Final = 60.0


def event(number: int, status: str, *, minutes: float = 15) -> dict[str, object]:
    """Return event *number*, of machine *number*, which is to start after so many *minutes*."""
    moment = datetime.fromtimestamp(BEGIN + minutes * MINUTE, UTC)
    return {
        "EventId": f"e{number}",
        "EventType": "Reboot",
        "EventStatus": status,
        "Resources": [MACHINES[number]],
        "NotBefore": format_datetime(moment, usegmt=True) if status == "Scheduled" else "",
    }


class Story:
    """Two machines of different update domains have their turns; each lie changes something."""

    def __init__(self) -> None:
        self.documents = [
            [],
            [event(0, "Scheduled")],
            [event(0, "Started")],
            [event(1, "Scheduled", minutes=40)],
            [event(1, "Started")],
            [],
        ]
        self.read_at: list[float] = [0, 0, 1, 20, 40, 45]
        self.approvals = {"e0": '["web-0"]', "e1": "[]"}
        self.states = {"e0": "ended", "e1": "ended"}
        self.shown: dict[int, bytes] = {}
        self.notes = [
            self._at(0.5, "asks", "web-0", "e0"),
            self._at(0.6, "approves", "web-0", "e0"),
            self._at(0.1, "starts", "m1"),
            self._at(2, "begin", ("e0", "web-0")),
            self._at(3, "end", ("e0", "web-0")),
            self._at(41, "begin", ("e1", "web-1")),
            self._at(42, "end", ("e1", "web-1")),
        ]
        self.least = 50

    def _at(self, minutes: float, what: str, *words: object) -> Note:
        return Note(BEGIN + minutes * MINUTE, what, words)

    def body(self, number: int) -> bytes:
        content = {"DocumentIncarnation": number, "Events": self.documents[number - 1]}
        return json.dumps(content).encode()

    def rows(self) -> sqlite3.Connection:
        rows = sqlite3.connect(":memory:")
        rows.executescript(
            "CREATE TABLE documents (scope_id, document_incarnation, body);"
            "CREATE TABLE events (event_id, maintenance_id, approvals, started_at, ended_at);"
            "CREATE TABLE tasks (subject, name, state, node, vm, host);"
            "CREATE TABLE maintenances (maintenance_id);"
            "INSERT INTO maintenances VALUES ('m1')"
        )
        for number in range(1, len(self.documents) + 1):
            rows.execute(
                "INSERT INTO documents VALUES (?, ?, ?)", [SCOPE, number, self.body(number)]
            )
        for number, (key, approvals) in enumerate(self.approvals.items()):
            vm = MACHINES[number]
            started_at = int((BEGIN + self.read_at[2] * MINUTE) * 1_000_000)
            event_row = [key, approvals, started_at]
            rows.execute("INSERT INTO events VALUES (?, 'm1', ?, ?, NULL)", event_row)
            task = [key, vm, self.states[key], "n", vm]
            rows.execute("INSERT INTO tasks VALUES (?, ?, ?, ?, ?, NULL)", task)
        return rows

    def check(self) -> None:
        history = History(list(self.notes))
        for number, minutes in enumerate(self.read_at, 1):
            body = self.shown.get(number, self.body(number))
            history.notes.append(self._at(minutes, "shown", "web-0", "replica", body))
        machines = {
            name: Machine(name=name, scope=SCOPE, domain=number, host=f"h{number}")
            for number, name in enumerate(MACHINES)
        }
        model = Model(machines=machines, approval={SCOPE: "any"}, min_available={"m1": self.least})
        with_rows = self.rows()
        try:
            check(history, with_rows, model)
        finally:
            with_rows.close()


def test_truth_is_accepted() -> None:
    Story().check()


def begin_twice(story: Story) -> None:
    story.notes.append(story.notes[3])


def begin_both_at_once(story: Story) -> None:
    story.notes[5] = Note(story.notes[3].at + 1, *_rest(story.notes[5]))


def begin_what_was_withdrawn(story: Story) -> None:
    story.states["e1"] = "withdrawn"


def end_nothing(story: Story) -> None:
    del story.notes[6]


def give_half_the_notice(story: Story) -> None:
    story.documents[1] = [event(0, "Scheduled", minutes=7.5)]


def start_without_approval(story: Story) -> None:
    story.notes = [each for each in story.notes if each.what not in {"asks", "approves"}]


def lose_the_approval(story: Story) -> None:
    story.approvals["e0"] = "[]"


def lose_the_maintenance(story: Story) -> None:
    story.notes.append(Note(BEGIN, "starts", ("m2",)))


def leave_too_few(story: Story) -> None:
    story.least = 100


def show_two_domains(story: Story) -> None:
    story.documents[4] = [event(0, "Started"), event(1, "Started")]


def show_others(story: Story) -> None:
    other: dict[str, Any] = {**event(0, "Scheduled"), "Resources": ["db-0"]}
    story.documents[1] = [other]


def go_back(story: Story) -> None:
    story.read_at[4], story.read_at[5] = story.read_at[5], story.read_at[4]


def show_what_is_not_in_the_history(story: Story) -> None:
    story.shown[2] = story.body(2).replace(b"Reboot", b"Freeze")


def _rest(note: Note) -> tuple[str, tuple[Any, ...]]:
    return note.what, note.words


@pytest.mark.parametrize(
    ("lie", "said"),
    [
        (begin_twice, "begins twice"),
        (begin_both_at_once, "update domains [0, 1]"),
        (begin_what_was_withdrawn, "is recorded as"),
        (end_nothing, "did not end"),
        (give_half_the_notice, "before NotBefore"),
        (start_without_approval, "starts before NotBefore, approved by []"),
        (lose_the_approval, "is not there"),
        (lose_the_maintenance, "the acknowledged maintenance m2 is gone"),
        (leave_too_few, "leaves 2 of 3"),
        (show_two_domains, "shows work on update domains [0, 1]"),
        (show_others, "which are not in"),
        (go_back, "reads incarnation 5 after 6"),
        (show_what_is_not_in_the_history, "is another one in the history"),
    ],
)
def test_lie_is_found(lie: Callable[[Story], None], said: str) -> None:
    story = Story()
    lie(story)

    with pytest.raises(Violation) as found:
        story.check()

    assert said in str(found.value)
