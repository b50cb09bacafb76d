"""Every kind of reason, said in its sentence."""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from forewarn.domain.event import (
    Approval,
    Approver,
    Draft,
    Outcome,
    ScheduledEvent,
    Share,
    Trigger,
    approve,
    cancel,
    complete,
    request_start,
    schedule,
    start,
    start_unannounced,
)
from forewarn.domain.explanation import explain, explain_operation
from forewarn.domain.host_operation import HostOperation, HostPhase, OperationOutcome, end
from forewarn.domain.host_work import HostTask, HostTaskKind, HostWorkRule
from forewarn.domain.impact import Impact, ImpactStatus, OwnerAway
from forewarn.domain.maintenance import Maintenance, abort, pause
from forewarn.domain.names import (
    HostName,
    MaintenanceId,
    OperationId,
    ScenarioRunId,
    ScopeId,
    VmName,
)
from forewarn.domain.policy import ApprovalPolicy, Policy
from forewarn.domain.scenario import Intervention, ScenarioRun
from forewarn.domain.snapshot import Snapshot
from forewarn.domain.topology import Topology
from forewarn.domain.why import OF_HOST, SENTENCES, Reason, ReasonKind
from forewarn.protocol.vocabulary import EventId, EventSource, EventType

WEB = ScopeId("availability-set/web")
FREEZE = MaintenanceId("freeze")


def with_policy(fleet: Topology, **rules: object) -> Topology:
    scope = replace(fleet.scopes[WEB], policy=Policy(**rules))  # type: ignore[arg-type]
    return replace(fleet, scopes={**fleet.scopes, WEB: scope})


def snapshot(fleet: Topology, *events: ScheduledEvent, **more: object) -> Snapshot:
    known = {event.event_id: event for event in events}
    return Snapshot(topology=fleet, events=known, **more)  # type: ignore[arg-type]


def sentences(reasons: tuple[Reason, ...]) -> list[str]:
    return [reason.sentence for reason in reasons]


def kinds(reasons: tuple[Reason, ...]) -> list[ReasonKind]:
    return [reason.kind for reason in reasons]


def test_every_kind_has_a_sentence() -> None:
    assert SENTENCES.keys() == set(ReasonKind)


@pytest.mark.parametrize(
    ("approval", "sentence"),
    [
        (
            ApprovalPolicy.ANY,
            "Not approved yet; one approval is enough (web-0, web-2).",
        ),
        (
            ApprovalPolicy.ALL,
            "Not approved by web-0, web-2; every affected virtual machine must approve.",
        ),
        (
            ApprovalPolicy.LEADER,
            "Not approved by web-0, the only virtual machine whose approval counts.",
        ),
    ],
)
def test_scheduled_event_waits_for_the_approvals_of_its_policy(
    event: ScheduledEvent, fleet: Topology, now: datetime, approval: ApprovalPolicy, sentence: str
) -> None:
    reasons = explain(event, snapshot(with_policy(fleet, approval=approval), event), now)

    assert sentences(reasons) == [
        sentence,
        "The event starts at 2026-03-02 12:15:00 GMT at the latest.",
    ]
    assert [reason.holds for reason in reasons] == [True, False]


def test_who_has_approved_is_not_named(
    event: ScheduledEvent, fleet: Topology, now: datetime
) -> None:
    fleet = with_policy(fleet, approval=ApprovalPolicy.ALL)
    half = request_start(event, vm=VmName("web-0"), now=now)

    (waiting, *_) = explain(half, snapshot(fleet, half), now)

    assert waiting.vms == ("web-2",)
    assert waiting.until == event.not_before


def test_hard_deadline_is_told_while_it_can_be_postponed(
    event: ScheduledEvent, fleet: Topology, now: datetime
) -> None:
    fleet = with_policy(fleet, postpone_until=timedelta(hours=1))

    reasons = explain(event, snapshot(fleet, event, speed=2), now)

    assert sentences(reasons)[-1] == (
        "The event can be postponed to 2026-03-02 12:45:00 GMT at the latest."
    )


@pytest.mark.parametrize("approved", [True, False])
def test_event_that_nothing_holds_is_about_to_start(
    event: ScheduledEvent, fleet: Topology, now: datetime, *, approved: bool
) -> None:
    word = Approval(approver=Approver.OPERATOR, name="alice", approved_at=now)
    moment = now if approved else event.not_before
    event = approve(event, word) if approved else event

    assert kinds(explain(event, snapshot(fleet, event), moment)) == [ReasonKind.ABOUT_TO_START]


def on_host(draft: Draft, number: int, vm: str, scope: str, now: datetime) -> ScheduledEvent:
    share = Share(scope_id=ScopeId(scope), update_domain=0, resources=(VmName(vm),))
    of_host = replace(
        draft,
        share=share,
        maintenance_id=FREEZE,
        host=HostName("kvm-1"),
        operation_id=OperationId("operation"),
    )
    notice = timedelta(minutes=15)
    return schedule(of_host, event_id=EventId(f"H{number}"), now=now, notice=notice)


def restart(draft: Draft, vm: str, now: datetime) -> ScheduledEvent:
    """Announce that its owner restarts *vm* of update domain 0."""
    share = Share(scope_id=WEB, update_domain=0, resources=(VmName(vm),))
    own = replace(draft, event_source=EventSource.USER, share=share)
    return schedule(own, event_id=EventId("U1"), now=now, notice=timedelta(minutes=15))


def test_event_waits_for_another_that_has_started_on_its_virtual_machine(
    event: ScheduledEvent, draft: Draft, fleet: Topology, now: datetime
) -> None:
    running, waiting = start(event, now=now), restart(draft, "web-2", now)
    seen = snapshot(fleet, running, waiting)

    assert sentences(explain(waiting, seen, now)) == [
        "Not approved yet; one approval is enough (web-2).",
        "The event waits for E1 on web-2 to end: a virtual machine has one impact at a time.",
    ]
    assert "U1 waits for this event to end on web-2." in sentences(explain(running, seen, now))


def test_younger_of_two_that_could_start_at_once_waits(
    event: ScheduledEvent, draft: Draft, fleet: Topology, now: datetime
) -> None:
    younger = restart(draft, "web-2", now)
    seen = snapshot(fleet, event, younger)
    moment = event.not_before

    assert kinds(explain(event, seen, moment)) == [ReasonKind.ABOUT_TO_START, ReasonKind.AWAITED]
    assert kinds(explain(younger, seen, moment)) == [ReasonKind.OTHER_EVENT]


def test_events_of_a_host_operation_wait_together_for_another(
    draft: Draft, fleet: Topology, now: datetime
) -> None:
    web = on_host(draft, 1, "web-0", WEB, now)
    db = on_host(draft, 2, "db-0", "availability-set/db", now)
    running = start(restart(draft, "web-0", now), now=now)
    seen = snapshot(fleet, running, web, db)

    assert sentences(explain(db, seen, db.not_before))[0] == (
        "The event starts together with the other events on kvm-1, which wait for U1 on web-0 to "
        "end."
    )
    assert kinds(explain(web, seen, web.not_before))[0] is ReasonKind.OTHER_EVENT


def test_impact_begins_when_that_of_another_event_is_over(
    event: ScheduledEvent, draft: Draft, fleet: Topology, now: datetime
) -> None:
    older, forced = start(event, now=now), start(restart(draft, "web-2", now), now=now)
    impacts = {
        (older.event_id, VmName("web-0")): Impact(status=ImpactStatus.DONE),
        (older.event_id, VmName("web-2")): Impact(status=ImpactStatus.RUNNING),
    }
    seen = snapshot(fleet, older, forced, impacts=impacts)

    assert sentences(explain(forced, seen, now)) == [
        "The impact on web-2 begins when the impact of E1 has ended."
    ]
    assert "U1 waits for this event to end on web-2." in sentences(explain(older, seen, now))


def test_event_of_a_host_operation_waits_for_the_others(
    draft: Draft, fleet: Topology, now: datetime
) -> None:
    web = request_start(on_host(draft, 1, "web-0", WEB, now), vm=VmName("web-0"), now=now)
    db = on_host(draft, 2, "db-0", "availability-set/db", now)

    reasons = explain(web, snapshot(fleet, web, db), now)

    assert sentences(reasons) == [
        (
            "The event starts together with H2 on kvm-1, which is not approved by db-0 and "
            "waits until 2026-03-02 12:15:00 GMT at the latest."
        ),
        "The event is a step of maintenance freeze.",
    ]
    assert not any(reason.event_ids for reason in explain(db, snapshot(fleet, web, db), now))


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        (abort, [ReasonKind.MAINTENANCE_ABORTED, ReasonKind.MAINTENANCE]),
        (
            pause,
            [ReasonKind.APPROVAL_OF_ANY, ReasonKind.NOT_BEFORE, ReasonKind.MAINTENANCE_PAUSED],
        ),
    ],
)
def test_state_of_the_maintenance_is_told(
    draft: Draft,
    fleet: Topology,
    now: datetime,
    changed: Callable[[Maintenance], Maintenance],
    expected: list[ReasonKind],
) -> None:
    event = on_host(draft, 1, "web-0", WEB, now)
    maintenance = changed(
        Maintenance(maintenance_id=FREEZE, event_type=EventType.FREEZE, started_at=now)
    )

    reasons = explain(event, snapshot(fleet, event, maintenances={FREEZE: maintenance}), now)

    assert kinds(reasons) == expected


ASK_AGAIN = datetime.fromisoformat("2026-03-02T12:10:00Z")
AWAY = OwnerAway(
    name="db-1",
    since=datetime.fromisoformat("2026-03-02T12:01:00Z"),
    pages_at=datetime.fromisoformat("2026-03-02T12:06:00Z"),
)


@pytest.mark.parametrize(
    ("impact", "sentence"),
    [
        (
            None,
            "The event started at 2026-03-02 12:00:00 GMT, but the impact on web-0 has not begun.",
        ),
        (
            Impact(status=ImpactStatus.NOT_BEGUN, reason="it is waiting: at most 64 run at once"),
            (
                "The event started at 2026-03-02 12:00:00 GMT, but the impact on web-0 has not "
                "begun: it is waiting: at most 64 run at once."
            ),
        ),
        (
            Impact(status=ImpactStatus.NOT_BEGUN),
            "The event started at 2026-03-02 12:00:00 GMT, but the impact on web-0 has not begun.",
        ),
        (
            Impact(status=ImpactStatus.RUNNING),
            "The impact on web-0 has been running since 2026-03-02 12:00:00 GMT.",
        ),
        (
            Impact(status=ImpactStatus.RUNNING, ask_again_at=ASK_AGAIN),
            (
                "The impact on web-0 has been running since 2026-03-02 12:00:00 GMT; "
                "the executor is asked again at 2026-03-02 12:10:00 GMT."
            ),
        ),
        (
            Impact(status=ImpactStatus.RUNNING, away=AWAY),
            (
                "The impact on web-0 is carried out by db-1, which has been away since "
                "2026-03-02 12:01:00 GMT; operators are paged at 2026-03-02 12:06:00 GMT."
            ),
        ),
        (
            Impact(status=ImpactStatus.RUNNING, is_by_hand=True),
            (
                "The event has been waiting since 2026-03-02 12:00:00 GMT for an operator to "
                "carry out the impact on web-0 and complete it."
            ),
        ),
        (
            Impact(status=ImpactStatus.UNKNOWN, reason="no answer", ask_again_at=ASK_AGAIN),
            (
                "The state of the impact on web-0 is unknown: no answer. An impact is never "
                "begun twice, so the server waits and asks again at 2026-03-02 12:10:00 GMT."
            ),
        ),
        (
            Impact(status=ImpactStatus.UNKNOWN),
            (
                "The state of the impact on web-0 is unknown. An impact is never begun twice, "
                "so the "
                "server waits."
            ),
        ),
    ],
)
def test_started_event_waits_for_the_impact_on_each_machine(
    event: ScheduledEvent, fleet: Topology, now: datetime, impact: Impact | None, sentence: str
) -> None:
    event = start(event, now=now)
    known = {(event.event_id, VmName("web-2")): Impact(status=ImpactStatus.DONE)}
    if impact is not None:
        known[event.event_id, VmName("web-0")] = impact

    reasons = explain(event, snapshot(fleet, event, impacts=known), now)

    assert sentences(reasons) == [sentence, "The impact on web-2 has ended."]
    assert [reason.holds for reason in reasons] == [True, False]


def test_machines_of_which_the_same_is_known_share_a_sentence(
    event: ScheduledEvent, fleet: Topology, now: datetime
) -> None:
    event = start(event, now=now)
    failed = Impact(status=ImpactStatus.FAILED, reason="no boot")
    known = dict.fromkeys([(event.event_id, vm) for vm in event.resources], failed)

    assert sentences(explain(event, snapshot(fleet, event, impacts=known), now)) == [
        "The impact on web-0, web-2 has failed: no boot.",
        "Nothing holds the event; it is about to complete.",
    ]


def test_overdue_event_says_since_when(
    event: ScheduledEvent, fleet: Topology, now: datetime
) -> None:
    late = replace(start(event, now=now), overdue_at=now)
    known = {(event.event_id, vm): Impact(status=ImpactStatus.RUNNING) for vm in event.resources}

    (_, reason) = explain(late, snapshot(fleet, late, impacts=known), now)

    assert (reason.kind, reason.holds, reason.since) == (ReasonKind.OVERDUE, False, now)
    assert reason.sentence == (
        "The event has been overdue since 2026-03-02 12:00:00 GMT: it takes longer than announced."
    )


def test_overlap_of_update_domains_is_shown(
    event: ScheduledEvent, draft: Draft, fleet: Topology, now: datetime
) -> None:
    share = Share(scope_id=WEB, update_domain=1, resources=(VmName("web-1"),))
    restart = replace(draft, event_source=EventSource.USER, share=share)
    other = start_unannounced(restart, event_id=EventId("E2"), now=now)
    over = complete(other, outcome=Outcome.SUCCEEDED, now=now)

    assert sentences(explain(event, snapshot(fleet, event, other), now))[-1] == (
        "At the same time, E2 is in flight for web-1 in another update domain (1) of the same "
        "scope."
    )
    assert ReasonKind.OVERLAP not in kinds(explain(event, snapshot(fleet, event, over), now))


@pytest.mark.parametrize(
    ("label", "sentence"),
    [
        (
            "mine",
            (
                "The event is part of a run of scenario chaos, which will cancel it at "
                "2026-03-02 12:05:00 GMT."
            ),
        ),
        ("other", "The event is part of a run of scenario chaos."),
    ],
)
def test_scenario_of_an_event_is_told_with_what_it_is_going_to_do(
    event: ScheduledEvent, fleet: Topology, now: datetime, label: str, sentence: str
) -> None:
    run = ScenarioRun(
        run_id=ScenarioRunId("run"),
        name="chaos",
        resources=event.resources,
        began_at=now,
        speed=1,
        steps=(Intervention(at=timedelta(minutes=5), label=label, trigger=Trigger.CANCEL),),
        events={"mine": (event.event_id,), "other": ()},
    )
    elsewhere = replace(run, run_id=ScenarioRunId("elsewhere"), events={"mine": (), "other": ()})
    runs = {each.run_id: each for each in (run, elsewhere)}

    reasons = explain(event, snapshot(fleet, event, scenario_runs=runs), now)

    assert sentences(reasons)[2:] == [sentence]


def test_how_an_event_ended_is_told(event: ScheduledEvent, fleet: Topology, now: datetime) -> None:
    started = start(event, now=now)
    endings = [
        cancel(event, now=now, reason="not today"),
        complete(started, outcome=Outcome.FAILED, now=now, reason="no boot"),
        complete(started, outcome=Outcome.SUCCEEDED, now=now),
    ]

    told = [sentences(explain(ended, snapshot(fleet), now)) for ended in endings]

    assert told == [
        ["The event was canceled at 2026-03-02 12:00:00 GMT: not today."],
        ["The event completed at 2026-03-02 12:00:00 GMT and failed: no boot."],
        ["The event completed at 2026-03-02 12:00:00 GMT and succeeded."],
    ]


WORK = HostWorkRule(has_verify=True)


def at_host(phase: HostPhase, draft: Draft, fleet: Topology, now: datetime) -> Snapshot:
    """Show a host operation in a phase, with one machine whose impact is over."""
    event = start(on_host(draft, 1, "web-0", WEB, now), now=now)
    operation = HostOperation(
        operation_id=OperationId("operation"),
        maintenance_id=FREEZE,
        event_type=event.event_type,
        host=HostName("kvm-1"),
        created_at=now,
        phase=phase,
        verify_at=now,
        verify_by=now,
    )
    return replace(
        snapshot(fleet, event),
        operations={operation.operation_id: operation},
        impacts={(event.event_id, VmName("web-0")): Impact(status=ImpactStatus.DONE)},
        host_works=(WORK,),
    )


def of_host(seen: Snapshot, now: datetime) -> list[ReasonKind]:
    (event,) = seen.events.values()
    return [reason.kind for reason in explain(event, seen, now) if reason.kind in OF_HOST]


def test_host_with_nobody_in_the_way_is_about_to_be_worked_on(
    draft: Draft, fleet: Topology, now: datetime
) -> None:
    assert of_host(at_host(HostPhase.IMPACT, draft, fleet, now), now) == []


@pytest.mark.parametrize(
    ("phase", "said", "expected"),
    [
        (HostPhase.WORK, ImpactStatus.RUNNING, [ReasonKind.HOST_WORK]),
        (HostPhase.WORK, ImpactStatus.UNKNOWN, [ReasonKind.HOST_UNKNOWN]),
        (HostPhase.WORK, ImpactStatus.DONE, []),
        (HostPhase.VERIFY, ImpactStatus.RUNNING, [ReasonKind.HOST_VERIFY]),
    ],
)
def test_work_on_the_host_holds_until_it_is_over(
    draft: Draft,
    fleet: Topology,
    now: datetime,
    phase: HostPhase,
    said: ImpactStatus,
    expected: list[ReasonKind],
) -> None:
    seen = at_host(phase, draft, fleet, now)
    task = HostTask(
        operation_id=OperationId("operation"),
        maintenance_id=FREEZE,
        event_type=draft.event_type,
        host=HostName("kvm-1"),
        kind=HostTaskKind(phase.value),
    )

    assert of_host(replace(seen, tasks={task: Impact(status=said)}), now) == expected


def test_owner_of_the_work_on_a_host_that_is_away_is_named(
    draft: Draft, fleet: Topology, now: datetime
) -> None:
    seen = at_host(HostPhase.WORK, draft, fleet, now)
    task = HostTask(
        operation_id=OperationId("operation"),
        maintenance_id=FREEZE,
        event_type=draft.event_type,
        host=HostName("kvm-1"),
        kind=HostTaskKind.WORK,
    )
    said = Impact(status=ImpactStatus.RUNNING, away=AWAY)

    assert returned(replace(seen, tasks={task: said}), now) == [
        (
            "The work on kvm-1 is carried out by db-1, which has been away since "
            "2026-03-02 12:01:00 GMT; operators are paged at 2026-03-02 12:06:00 GMT."
        )
    ]


def test_guests_that_are_being_returned_share_a_sentence(
    draft: Draft, fleet: Topology, now: datetime
) -> None:
    returning = at_host(HostPhase.RETURN, draft, fleet, now)
    other = start(on_host(draft, 2, "db-0", "availability-set/db", now), now=now)
    both = replace(returning, events={**returning.events, other.event_id: other})

    assert returned(returning, now) == ["The work on kvm-1 is done; web-0 is being returned."]
    assert returned(both, now) == ["The work on kvm-1 is done; web-0, db-0 are being returned."]


def returned(seen: Snapshot, now: datetime) -> list[str]:
    (operation,) = seen.operations.values()
    return [reason.sentence for reason in explain_operation(operation, seen, now)]


def test_event_whose_host_is_through_is_about_to_complete_whatever_is_known_of_its_impact(
    draft: Draft, fleet: Topology, now: datetime
) -> None:
    working = at_host(HostPhase.WORK, draft, fleet, now)
    (operation,), (event,) = working.operations.values(), working.events.values()
    ended = end(operation, OperationOutcome.FAILED, now=now, reason="no disk")
    seen = replace(working, operations={ended.operation_id: ended}, impacts={})

    reasons = explain(event, seen, now)

    assert not any(reason.holds for reason in reasons)
    assert ReasonKind.ABOUT_TO_COMPLETE in {reason.kind for reason in reasons}
