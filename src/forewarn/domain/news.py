"""What there is to tell about a Maintenance, beyond what is told about its events."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

from forewarn.domain.failures import find_failures, find_standings
from forewarn.domain.gate import Answer, GateStatus
from forewarn.domain.maintenance import Maintenance, own_events, remaining_steps
from forewarn.domain.names import MaintenanceId, ScopeId
from forewarn.domain.notification import Phase
from forewarn.domain.snapshot import Snapshot
from forewarn.domain.standing import MaintenanceStatus, Standing
from forewarn.domain.walk import find_state, find_stuck, is_under_way


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What people know of a Maintenance: what stops it, shut gates, and places that failed.

    *stopped* is PAUSED, HELD or STUCK. It is kept with the messages, so that each is written once.
    """

    maintenance_id: MaintenanceId
    stopped: Phase | None = None
    gates: tuple[str, ...] = ()
    places: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class News:
    """What has become of a Maintenance, where it is about a host or scope or about a gate."""

    phase: Phase
    place: str = ""
    gate: str = ""
    detail: str = ""


def find_news(
    maintenance: Maintenance, told: Told, snapshot: Snapshot, now: datetime
) -> tuple[Told, tuple[News, ...]]:
    """Return what people know once they are told the news, and these."""
    failures = find_failed_places(maintenance, snapshot)
    answers = _answers_of(maintenance, snapshot)
    shut = {gate: each for gate, each in answers.items() if each.status is GateStatus.SHUT}
    stop = _what_stops(maintenance, told, snapshot, now)
    stopped = stop.phase if stop else None
    news = (
        *failure_news(told, failures),
        *(
            News(phase=Phase.GATE_SHUT, gate=gate, detail=answer.output)
            for gate, answer in shut.items()
            if gate not in told.gates
        ),
        *(() if stopped is told.stopped else (stop or News(phase=Phase.RESUMED),)),
    )
    # A gate that is being asked again has not opened.
    gates = {gate for gate in told.gates if gate in answers and gate not in shut}
    asked = {gate for gate in gates if answers[gate].status is GateStatus.ASKING}
    after = Told(
        maintenance_id=maintenance.maintenance_id,
        stopped=stopped,
        gates=tuple(sorted(asked | shut.keys())),
        places=tuple(sorted(failures)),
    )
    return after, news


def failure_news(told: Told, failures: dict[str, str]) -> Iterator[News]:
    """Yield the places that failed and of which people do not know, each with its reason."""
    for place, reason in failures.items():
        if place not in told.places:
            yield News(phase=Phase.STEP_FAILED, place=place, detail=reason)


def find_failed_places(maintenance: Maintenance, snapshot: Snapshot) -> dict[str, str]:
    """Return each host, or scope, that waits to be retried or skipped, and why.

    What was only withdrawn waits for nobody once the Maintenance is aborted.
    """
    events, operations = snapshot.events.values(), snapshot.operations.values()
    return {
        failure.place: failure.reason
        for failure in find_failures(maintenance, events, operations)
        if failure.has_failed or not maintenance.is_aborted
    }


def count_places(maintenance: Maintenance, snapshot: Snapshot) -> Counter[Standing]:
    """Count the hosts, or scopes, of *maintenance* by where it is with each."""
    events, operations = snapshot.events.values(), snapshot.operations.values()
    left = remaining_steps(maintenance, snapshot.topology, events, operations)
    waiting = (step.place for step in left)
    return Counter(find_standings(maintenance, events, operations, waiting).values())


def scopes_of(maintenance: Maintenance, snapshot: Snapshot) -> Iterable[ScopeId]:
    """Return every scope that *maintenance* touches, or has touched."""
    resources, hosts = set(maintenance.resources), set(maintenance.hosts)
    now = {
        vm.scope_id
        for vm in snapshot.topology.virtual_machines.values()
        if vm.name in resources or vm.host in hosts
    }
    return now | {event.scope_id for event in own_events(maintenance, snapshot.events.values())}


def _answers_of(maintenance: Maintenance, snapshot: Snapshot) -> dict[str, Answer]:
    """Return what each gate said; of several answers, that which holds a step back."""
    answers: dict[str, Answer] = {}
    for question, answer in snapshot.answers.items():
        if question.maintenance_id == maintenance.maintenance_id:
            known = answers.get(question.gate)
            if known is None or known.status is not GateStatus.SHUT:
                answers[question.gate] = answer
    return answers


def _what_stops(
    maintenance: Maintenance, told: Told, snapshot: Snapshot, now: datetime
) -> News | None:
    if stuck := find_stuck(maintenance, snapshot):
        return News(phase=Phase.STUCK, detail=stuck.detail)
    if maintenance.is_aborted:
        # Aborted is neither paused nor held, nor does it go on: its end is told.
        known = None if told.stopped is Phase.STUCK else told.stopped
        return News(phase=known) if known else None
    if maintenance.is_paused:
        return News(phase=Phase.PAUSED)
    # Cheaper than to walk, and enough while everything goes well.
    if is_under_way(maintenance, snapshot):
        return None
    is_held = find_state(maintenance, snapshot, now).status is MaintenanceStatus.HELD
    return News(phase=Phase.HELD) if is_held else None
