"""What is done next with a domain, for every mark and everything that libvirt can say of it."""

from dataclasses import replace
from datetime import timedelta
from itertools import product

import pytest
from tests.executors.conftest import EVENT, NOW

from forewarn.domain.impact import ImpactStatus
from forewarn.executors.libvirt.decisions import Act, End, LookAgain, Power, Repair, Sight, decide
from forewarn.executors.libvirt.marks import DomainMark, MarkPhase, read_mark
from forewarn.executors.libvirt.plans import HostPlace, ImpactPlan, encode_plan, read_plan
from forewarn.protocol.vocabulary import EventId, EventType

SECOND = timedelta(seconds=1)
LATER = NOW + timedelta(minutes=1)
"""When whoever set the mark has had the time to do its deed."""
PLAN = ImpactPlan(
    event_id=EVENT.event_id,
    event_type=EventType.REBOOT,
    epoch=7,
    vm="web-0",
    vm_id="",
    here=HostPlace(host="kvm-0", uri="qemu:///system"),
    duration=300 * SECOND,
    grace=120 * SECOND,
    timeout=3600 * SECOND,
    connect_timeout=30 * SECOND,
    ephemeral=("vdb",),
    others=(HostPlace(host="kvm-1", uri="qemu+ssh://kvm-1/system", migrate_uri="tcp://kvm-1"),),
    barred={"kvm-2": "it is closed"},
)
OPEN_ENDED = {MarkPhase.SUSPEND, MarkPhase.REBOOT, MarkPhase.SHUTDOWN}
TYPES = {
    MarkPhase.SUSPEND: EventType.FREEZE,
    MarkPhase.MIGRATE: EventType.FREEZE,
    MarkPhase.MOVE: EventType.REDEPLOY,
    MarkPhase.SHUTDOWN: EventType.TERMINATE,
    MarkPhase.DESTROY: EventType.TERMINATE,
}


def plan_of(event_type: EventType, *, migrate: bool = False) -> ImpactPlan:
    return replace(PLAN, event_type=event_type, migrate=migrate)


def mark_of(phase: MarkPhase, **more: object) -> DomainMark:
    until = NOW + 120 * SECOND if phase in OPEN_ENDED else None
    made = DomainMark(
        event_id=EVENT.event_id,
        event_type=TYPES.get(phase, EventType.REBOOT),
        epoch=7,
        phase=phase,
        at=NOW,
        until=until,
        to="kvm-1",
    )
    return replace(made, **more)  # type: ignore[arg-type]


def sight_of(power: Power, mark: DomainMark | None = None, **more: object) -> Sight:
    return replace(Sight(power=power, host="kvm-0", mark=mark), **more)  # type: ignore[arg-type]


FIRST = {
    EventType.FREEZE: Act(phase=MarkPhase.SUSPEND, until=NOW + 300 * SECOND),
    EventType.REBOOT: Act(phase=MarkPhase.REBOOT, until=NOW + 120 * SECOND),
    EventType.REDEPLOY: Act(phase=MarkPhase.SHUTDOWN, until=NOW + 120 * SECOND),
    EventType.PREEMPT: Act(phase=MarkPhase.SHUTDOWN, until=NOW + 120 * SECOND),
    EventType.TERMINATE: Act(phase=MarkPhase.SHUTDOWN, until=NOW + 120 * SECOND),
}


@pytest.mark.parametrize("event_type", EventType)
def test_impact_on_a_running_guest_begins_with_its_first_deed(event_type: EventType) -> None:
    assert decide(plan_of(event_type), sight_of(Power.RUNNING), NOW) == FIRST[event_type]


def test_freeze_that_migrates_begins_with_the_migration() -> None:
    plan = plan_of(EventType.FREEZE, migrate=True)

    assert decide(plan, sight_of(Power.RUNNING), NOW) == Act(phase=MarkPhase.MIGRATE)


@pytest.mark.parametrize("power", [Power.OFF, Power.PAUSED])
@pytest.mark.parametrize("event_type", [EventType.FREEZE, EventType.REBOOT])
def test_guest_that_does_not_run_is_neither_frozen_nor_rebooted(
    event_type: EventType, power: Power
) -> None:
    said = decide(plan_of(event_type), sight_of(power), NOW)

    assert said == End(status=ImpactStatus.FAILED, reason=f"the domain is {power} on host kvm-0")


def test_guest_that_is_off_is_redeployed_and_needs_no_ending() -> None:
    off = sight_of(Power.OFF)

    assert decide(plan_of(EventType.REDEPLOY), off, NOW) == Act(phase=MarkPhase.MOVE)
    ended = End(status=ImpactStatus.DONE, reason="it was already shut off")
    assert decide(plan_of(EventType.TERMINATE), off, NOW) == ended


@pytest.mark.parametrize("event_type", EventType)
def test_mark_of_an_earlier_event_is_replaced(event_type: EventType) -> None:
    other = mark_of(MarkPhase.DESTROY, event_id=EventId("AN-EARLIER-ONE"))

    assert decide(plan_of(event_type), sight_of(Power.RUNNING, other), NOW) == FIRST[event_type]


@pytest.mark.parametrize("mark", [None, mark_of(MarkPhase.SUSPEND, event_id=EventId("ANOTHER"))])
def test_whoever_has_begun_and_finds_another_mark_does_nothing_more(
    mark: DomainMark | None,
) -> None:
    said = decide(PLAN, sight_of(Power.RUNNING, mark, has_begun=True), NOW)

    assert isinstance(said, End)
    assert said.status is ImpactStatus.UNKNOWN


@pytest.mark.parametrize(
    ("phase", "status"),
    [(MarkPhase.DONE, ImpactStatus.DONE), (MarkPhase.FAILED, ImpactStatus.FAILED)],
)
def test_end_that_somebody_has_marked_is_the_end(phase: MarkPhase, status: ImpactStatus) -> None:
    mark = mark_of(phase, reason="as they say")

    said = decide(PLAN, sight_of(Power.RUNNING, mark, host="kvm-1"), NOW)

    assert said == End(status=status, reason="as they say", moved_to="kvm-1")


LIMIT = NOW + 120 * SECOND
GOES_ON: list[tuple[MarkPhase, Sight, object]] = [
    (MarkPhase.SUSPEND, sight_of(Power.PAUSED), LookAgain),
    (MarkPhase.SUSPEND, sight_of(Power.RUNNING, is_witness=True), ImpactStatus.DONE),
    (MarkPhase.SUSPEND, sight_of(Power.RUNNING, was_paused=True), ImpactStatus.DONE),
    (MarkPhase.SUSPEND, sight_of(Power.RUNNING), MarkPhase.SUSPEND),
    (MarkPhase.SUSPEND, sight_of(Power.OFF), ImpactStatus.FAILED),
    (MarkPhase.REBOOT, sight_of(Power.RUNNING, is_witness=True), LookAgain),
    (MarkPhase.REBOOT, sight_of(Power.RUNNING), LookAgain),
    (MarkPhase.REBOOT, sight_of(Power.RUNNING, has_restarted=True), ImpactStatus.DONE),
    (MarkPhase.REBOOT, sight_of(Power.OFF), Repair.START),
    (MarkPhase.REBOOT, sight_of(Power.OFF, has_restarted=True), Repair.START),
    (MarkPhase.RESET, sight_of(Power.RUNNING, is_witness=True), ImpactStatus.DONE),
    (MarkPhase.RESET, sight_of(Power.RUNNING), ImpactStatus.UNKNOWN),
    (MarkPhase.RESET, sight_of(Power.OFF), Repair.START),
    (MarkPhase.SHUTDOWN, sight_of(Power.RUNNING), LookAgain),
    (MarkPhase.SHUTDOWN, sight_of(Power.OFF), ImpactStatus.DONE),
    (MarkPhase.DESTROY, sight_of(Power.OFF), ImpactStatus.DONE),
    (MarkPhase.DESTROY, sight_of(Power.RUNNING, is_witness=True), ImpactStatus.FAILED),
    (MarkPhase.DESTROY, sight_of(Power.RUNNING), ImpactStatus.UNKNOWN),
    (MarkPhase.MIGRATE, sight_of(Power.RUNNING, is_moving=True), LookAgain),
    (MarkPhase.MIGRATE, sight_of(Power.RUNNING), ImpactStatus.FAILED),
    (MarkPhase.MIGRATE, sight_of(Power.RUNNING, host="kvm-1"), ImpactStatus.DONE),
    (MarkPhase.MOVE, sight_of(Power.OFF), MarkPhase.MOVE),
    (MarkPhase.MOVE, sight_of(Power.RUNNING), ImpactStatus.FAILED),
    (MarkPhase.MOVE, sight_of(Power.RUNNING, host="kvm-1"), ImpactStatus.DONE),
]
OUT_OF_TIME: list[tuple[MarkPhase, Sight, object]] = [
    (MarkPhase.SUSPEND, sight_of(Power.PAUSED), Repair.RESUME),
    (MarkPhase.SUSPEND, sight_of(Power.RUNNING), ImpactStatus.UNKNOWN),
    (MarkPhase.REBOOT, sight_of(Power.RUNNING, is_witness=True), MarkPhase.RESET),
    (MarkPhase.REBOOT, sight_of(Power.RUNNING), ImpactStatus.UNKNOWN),
    (MarkPhase.SHUTDOWN, sight_of(Power.RUNNING), MarkPhase.DESTROY),
]


def essence(decision: object) -> object:
    """Return what of a decision the tables name."""
    match decision:
        case Act():
            return decision.phase
        case End():
            return decision.status
        case LookAgain():
            return LookAgain
        case _:
            return decision


@pytest.mark.parametrize(("phase", "sight", "expected"), GOES_ON)
def test_impact_goes_on_as_libvirt_says(phase: MarkPhase, sight: Sight, expected: object) -> None:
    plan = plan_of(TYPES.get(phase, EventType.REBOOT))

    assert essence(decide(plan, replace(sight, mark=mark_of(phase)), LATER)) == expected


@pytest.mark.parametrize(("phase", "sight", "expected"), OUT_OF_TIME)
def test_patience_has_an_end(phase: MarkPhase, sight: Sight, expected: object) -> None:
    plan = plan_of(TYPES.get(phase, EventType.REBOOT))

    assert essence(decide(plan, replace(sight, mark=mark_of(phase)), LIMIT)) == expected


@pytest.mark.parametrize("power", [Power.OFF, Power.RUNNING])
@pytest.mark.parametrize("phase", [each for each in TYPES if each is not MarkPhase.SUSPEND])
def test_successor_waits_for_whoever_has_just_set_the_mark(phase: MarkPhase, power: Power) -> None:
    sight = sight_of(power, mark_of(phase))

    assert isinstance(decide(plan_of(TYPES[phase]), sight, NOW + SECOND), LookAgain)


def test_guest_is_resumed_in_time_whoever_has_set_the_mark() -> None:
    mark = mark_of(MarkPhase.SUSPEND, until=NOW + SECOND)

    said = decide(plan_of(EventType.FREEZE), sight_of(Power.PAUSED, mark), NOW + SECOND)

    assert said is Repair.RESUME


def test_guest_that_an_earlier_event_has_resumed_is_not_taken_for_frozen() -> None:
    mark = mark_of(MarkPhase.SUSPEND, was_resumed=True)
    plan, runs = plan_of(EventType.FREEZE), sight_of(Power.RUNNING, mark, was_paused=True)

    assert essence(decide(plan, runs, LATER)) is ImpactStatus.UNKNOWN
    assert essence(decide(plan, replace(runs, is_witness=True), LATER)) is ImpactStatus.DONE
    assert essence(decide(plan, replace(runs, was_paused=False), LATER)) is MarkPhase.SUSPEND


def test_redeploy_moves_the_guest_once_it_is_off() -> None:
    for phase in (MarkPhase.SHUTDOWN, MarkPhase.DESTROY):
        sight = sight_of(Power.OFF, mark_of(phase))
        assert decide(plan_of(EventType.REDEPLOY), sight, LATER) == Act(phase=MarkPhase.MOVE)


@pytest.mark.parametrize(("phase", "event_type"), [*product([None, *MarkPhase], EventType)])
def test_domain_that_is_gone_has_failed_by_name(
    phase: MarkPhase | None, event_type: EventType
) -> None:
    mark = None if phase is None else mark_of(phase)

    said = decide(plan_of(event_type), sight_of(Power.GONE, mark), LATER)

    reason = "there is no domain 'web-0' on host kvm-0"
    assert said == End(status=ImpactStatus.FAILED, reason=reason)


def test_domain_of_a_machine_without_a_host_is_gone_without_naming_one() -> None:
    said = decide(PLAN, sight_of(Power.GONE, host=""), NOW)

    assert said == End(status=ImpactStatus.FAILED, reason="there is no domain 'web-0'")


@pytest.mark.parametrize("phase", MarkPhase)
def test_mark_is_read_as_it_was_written(phase: MarkPhase) -> None:
    mark = mark_of(
        phase, reason='<kvm-1> says "no" & is right', has_autostart=True, was_resumed=True
    )

    assert read_mark(mark.encode()) == mark
    assert read_mark(replace(mark, until=None, to=None).encode()) == replace(
        mark, until=None, to=None
    )


BY_HAND = mark_of(MarkPhase.SUSPEND).encode().replace("+00:00", "")


@pytest.mark.parametrize(
    "text", ["", "<impact/>", "<", "<impact event_id='1' epoch='x'/>", BY_HAND]
)
def test_what_is_no_mark_is_taken_for_none(text: str) -> None:
    assert read_mark(text) is None


def test_control_characters_of_a_reason_do_not_spoil_the_mark() -> None:
    mark = mark_of(MarkPhase.FAILED, reason="no\x00 such\x1b host")

    found = read_mark(mark.encode())

    assert found is not None
    assert found.reason == "no such host"


def test_plan_is_read_as_it_was_written() -> None:
    assert read_plan(encode_plan(PLAN)) == PLAN


def test_freeze_is_never_cut_off_by_the_timeout() -> None:
    plan = replace(PLAN, timeout=10 * SECOND)

    assert plan.limit > plan.duration
