"""What is written down of what the leader was told, and what of it others read."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from forewarn.domain.event import Outcome, ScheduledEvent, complete, start
from forewarn.domain.gate import Answer, GateStatus, Question
from forewarn.domain.host_operation import HostOperation, OperationOutcome, end
from forewarn.domain.host_work import HostTask, HostTaskKind
from forewarn.domain.impact import Impact, ImpactStatus
from forewarn.domain.knowledge import (
    NOTHING,
    Knowledge,
    find_obsolete,
    find_unwritten,
    read_at,
)
from forewarn.domain.names import HostName, MaintenanceId, OperationId, VmName
from forewarn.domain.snapshot import Snapshot
from forewarn.domain.topology import Topology
from forewarn.protocol.vocabulary import EventId, EventType

NOW = datetime(2026, 3, 2, 12, 0, 0, 500_000, tzinfo=UTC)
LATER = NOW + timedelta(minutes=1)
KEY = (EventId("E1"), VmName("web-0"))
TASK = HostTask(
    operation_id=OperationId("o"),
    maintenance_id=MaintenanceId("m"),
    event_type=EventType.REBOOT,
    host=HostName("kvm-1"),
    kind=HostTaskKind.WORK,
)
QUESTION = Question(gate="smoke", maintenance_id=MaintenanceId("m"), scope_ids=(), steps_done=1)
RUNNING = Impact(status=ImpactStatus.RUNNING, reason="50 %", ask_again_at=NOW)
SHUT = Answer(status=GateStatus.SHUT, output="no", ask_again_at=NOW, asked_since=NOW)
ALL = Knowledge(impacts={KEY: RUNNING}, tasks={TASK: RUNNING}, answers={QUESTION: SHUT})


def test_what_was_never_written_is_to_be_written() -> None:
    assert find_unwritten(ALL, NOTHING) == ALL


@pytest.mark.parametrize(
    "said",
    [
        RUNNING,
        replace(RUNNING, ask_again_at=LATER),
    ],
    ids=["the same", "to be asked about later"],
)
def test_same_word_again_is_no_news(said: Impact) -> None:
    known = Knowledge(impacts={KEY: said}, tasks={TASK: said})

    assert not find_unwritten(known, ALL)


@pytest.mark.parametrize(
    "said",
    [
        replace(RUNNING, reason="60 %"),
        replace(RUNNING, ask_again_at=None),
        Impact(status=ImpactStatus.DONE),
    ],
    ids=["progress", "nothing more is heard", "end"],
)
def test_other_word_is_news(said: Impact) -> None:
    known = Knowledge(impacts={KEY: said}, tasks={TASK: said})

    assert find_unwritten(known, ALL) == known


def test_gate_that_is_asked_again_has_said_what_it_said_before() -> None:
    asking = Answer(status=GateStatus.ASKING, ask_again_at=LATER)
    known = Knowledge(answers={QUESTION: asking})

    assert not find_unwritten(known, ALL)
    assert find_unwritten(known, NOTHING) == known


def test_what_is_over_is_obsolete(event: ScheduledEvent, fleet: Topology, now: datetime) -> None:
    started = start(replace(event, event_id=KEY[0]), now=now)
    operation = HostOperation(
        operation_id=TASK.operation_id,
        maintenance_id=TASK.maintenance_id,
        event_type=TASK.event_type,
        host=TASK.host,
        created_at=now,
    )
    lasting = Snapshot(
        topology=fleet,
        events={started.event_id: started},
        operations={operation.operation_id: operation},
    )
    over = Snapshot(
        topology=fleet,
        events={started.event_id: complete(started, outcome=Outcome.SUCCEEDED, now=now)},
        operations={TASK.operation_id: end(operation, OperationOutcome.SUCCEEDED, now=now)},
    )

    assert find_obsolete(ALL, lasting, {QUESTION}) == NOTHING
    assert find_obsolete(ALL, over, set()) == ALL
    assert find_obsolete(ALL, Snapshot(topology=fleet), set()) == ALL


def test_what_was_asked_about_since_is_asked_about_at_any_moment() -> None:
    soon = datetime(2026, 3, 2, 12, 0, 1, tzinfo=UTC)

    found = read_at(ALL, NOW)

    assert found.impacts == {KEY: replace(RUNNING, ask_again_at=soon)}
    assert found.answers == {QUESTION: replace(SHUT, ask_again_at=soon)}
    assert read_at(ALL, NOW - timedelta(seconds=1)) == ALL


def test_knowledge_is_added_and_taken_away() -> None:
    done = Knowledge(impacts={KEY: Impact(status=ImpactStatus.DONE)})

    assert (ALL | done).impacts == done.impacts
    assert ALL - ALL == NOTHING
    assert ALL - done == replace(ALL, impacts={})
