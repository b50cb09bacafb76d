"""What there is to tell about a Maintenance."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from forewarn.domain.gate import Answer, GateStatus, Question
from forewarn.domain.maintenance import Maintenance
from forewarn.domain.names import MaintenanceId, ScopeId
from forewarn.domain.news import News, Told, find_news
from forewarn.domain.notification import Phase
from forewarn.domain.snapshot import Snapshot
from forewarn.domain.topology import Topology
from forewarn.protocol.vocabulary import EventType

NOW = datetime(2026, 1, 5, 8, tzinfo=UTC)
OURS = MaintenanceId("m1")
MAINTENANCE = Maintenance(maintenance_id=OURS, event_type=EventType.FREEZE, started_at=NOW)
NOTHING = Told(maintenance_id=OURS)
EMPTY = Topology(virtual_machines={}, scopes={}, hosts={})


def snapshot(*statuses: GateStatus, maintenance_id: MaintenanceId = OURS) -> Snapshot:
    """Return that a gate gave these answers, each about another scope."""
    answers = {
        Question(
            gate="smoke",
            maintenance_id=maintenance_id,
            scope_ids=(ScopeId(f"virtual-machine/{number}"),),
            steps_done=1,
        ): Answer(status=status, output=status.value)
        for number, status in enumerate(statuses)
    }
    return Snapshot(topology=EMPTY, answers=answers)


@pytest.mark.parametrize(
    "statuses",
    [
        [GateStatus.SHUT],
        [GateStatus.SHUT, GateStatus.SHUT],
        [GateStatus.SHUT, GateStatus.OPEN],
        [GateStatus.OPEN, GateStatus.SHUT],
    ],
)
def test_gate_that_is_shut_for_any_step_is_told_once(statuses: list[GateStatus]) -> None:
    told, news = find_news(MAINTENANCE, NOTHING, snapshot(*statuses), NOW)
    _, again = find_news(MAINTENANCE, told, snapshot(*statuses), NOW)

    assert news == (News(phase=Phase.GATE_SHUT, gate="smoke", detail="shut"),)
    assert again == ()


@pytest.mark.parametrize(
    ("statuses", "gates"),
    [([GateStatus.ASKING], ("smoke",)), ([GateStatus.OPEN], ()), ([], ())],
)
def test_gate_is_known_to_be_shut_until_it_opens(
    statuses: list[GateStatus], gates: tuple[str, ...]
) -> None:
    known = replace(NOTHING, gates=("smoke",))

    assert find_news(MAINTENANCE, known, snapshot(*statuses), NOW) == (
        replace(NOTHING, gates=gates),
        (),
    )


def test_gate_of_another_maintenance_is_not_ours() -> None:
    other = snapshot(GateStatus.SHUT, maintenance_id=MaintenanceId("m2"))

    assert find_news(MAINTENANCE, NOTHING, other, NOW) == (NOTHING, ())


def test_pause_and_its_end_are_told_once() -> None:
    paused = replace(MAINTENANCE, is_paused=True)

    told, news = find_news(paused, NOTHING, snapshot(), NOW)
    _, none = find_news(paused, told, snapshot(), NOW)
    after, later = find_news(MAINTENANCE, told, snapshot(), NOW)

    assert (news, none, later) == ((News(phase=Phase.PAUSED),), (), (News(phase=Phase.RESUMED),))
    assert after == NOTHING


def test_maintenance_that_is_aborted_does_not_continue() -> None:
    aborted = replace(MAINTENANCE, is_aborted=True)
    held = replace(NOTHING, stopped=Phase.HELD)

    assert find_news(aborted, held, snapshot(), NOW) == (held, ())
