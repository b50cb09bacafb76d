"""How long it takes to roll through 10,000 virtual machines in virtual time, and if it is safe.

One machine in some of the sets fails. What the server has recorded is then held against the rules,
in words of its own: no rule of the product is used to check the product.
"""

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from smoke import new_parser, run, sized

from forewarn.domain.course import Course
from forewarn.domain.event import ScheduledEvent
from forewarn.domain.maintenance import MaintenanceOrder
from forewarn.domain.planning import Plan
from forewarn.domain.standing import MaintenanceStatus
from forewarn.files.fleet import read_fleet
from forewarn.operations.maintenances import (
    MaintenanceReport,
    report_maintenance,
    start_maintenance,
)
from forewarn.operations.planning import plan_maintenance
from forewarn.protocol.vocabulary import EventType
from forewarn.testing.engine import Engine, start_engine
from forewarn.testing.handles import EmulatedClock

SETS: Final = sized(500, smoke=5)
UPDATE_DOMAINS: Final = 5
SET_SIZE: Final = 20
FAILING_EVERY: Final = 50
MIN_AVAILABLE: Final = 66
SOAK: Final = timedelta(minutes=30)
START: Final = datetime(2027, 1, 4, tzinfo=UTC)
SECONDS_TARGET: Final = 60.0
PLAN_TARGET: Final = 2.0
LONGEST: Final = timedelta(days=7)
"""Of maintenance time: twice what it takes at most."""

COURSES: Final = {
    "everywhere at once": Course(hold_all=False, min_available=MIN_AVAILABLE),
    "a canary, 100 sets at once, half an hour of soak": Course(
        hold_all=False, canary=("set-3",), at_once=100, soak=SOAK, min_available=MIN_AVAILABLE
    ),
}


def main() -> None:
    """Print the figures beside their targets."""
    new_parser(__doc__).parse_args()
    for name, course in COURSES.items():
        engine = start_engine({"executor": "simulated"}, read_fleet(_describe_fleet()), START)
        try:
            _measure(engine, name, course)
        finally:
            engine.close()


def _measure(engine: Engine, name: str, course: Course) -> None:
    order = MaintenanceOrder(
        event_type=EventType.FREEZE,
        scopes=tuple(f"set-{number}" for number in range(SETS)),
        course=course,
    )
    plan, planned = _plan(engine, order)
    began = time.perf_counter()
    started = engine.write(lambda tx, context: start_maintenance(tx, context, order))
    begun = time.perf_counter() - began
    EmulatedClock(engine).advance(LONGEST)
    taken = time.perf_counter() - began
    context = engine.replica.context("bench")
    report = engine.read(
        lambda reading: report_maintenance(reading, context, started.maintenance_id)
    )
    violations = [
        *_violations(report.events, course),
        *_left_out(report),
        *_unplanned(report.events, plan),
    ]
    _, foretold = _plan(engine, order)
    print(
        f"a roll-out through {SETS * SET_SIZE} VMs in {SETS} sets of {UPDATE_DOMAINS} update "
        f"domains, {name}: planned in {planned:.1f} s, with a forecast in {foretold:.1f} s (target "
        f"{PLAN_TARGET:.0f} s), begun in {begun:.1f} s, walked in {taken:.1f} s (target "
        f"{SECONDS_TARGET:.0f} s), {len(report.events)} events, {len(report.failures)} sets held, "
        f"{len(violations)} rules broken (target 0)"
    )
    for violation in violations[:10]:
        print(f"  {violation}")


def _plan(engine: Engine, order: MaintenanceOrder) -> tuple[Plan, float]:
    context = engine.replica.context("bench")
    began = time.perf_counter()
    plan = engine.read(lambda reading: plan_maintenance(reading, context, order))
    return plan, time.perf_counter() - began


def _describe_fleet() -> dict[str, Any]:
    return {
        "availability_set": [
            {"name": f"set-{number}", "update_domains": UPDATE_DOMAINS} for number in range(SETS)
        ],
        "virtual_machine": [
            {
                "name": f"vm-{number}-{index}",
                "availability_set": f"set-{number}",
                "update_domain": index % UPDATE_DOMAINS,
                **(
                    {"labels": {"simulated-failure": "no power"}}
                    if number % FAILING_EVERY == 1 and index == UPDATE_DOMAINS // 2
                    else {}
                ),
            }
            for number in range(SETS)
            for index in range(SET_SIZE)
        ],
    }


def _violations(events: Sequence[ScheduledEvent], course: Course) -> Iterator[str]:
    by_scope = defaultdict(list)
    for event in events:
        by_scope[event.scope_id].append(event)
        if event.started_at is None or event.ended_at is None:
            yield f"{event.event_id} has not ended"
        elif event.started_at < event.not_before and not event.approvals:
            yield f"{event.event_id} started early"
        if event.not_before - event.created_at < timedelta(minutes=15):
            yield f"{event.event_id} had too little notice"
    for scope_id, own in by_scope.items():
        yield from (f"{scope_id}: {problem}" for problem in _overlaps(own, course))


def _overlaps(own: Iterable[ScheduledEvent], course: Course) -> Iterator[str]:
    """Look at every moment at which an event of the scope begins."""
    needed = SET_SIZE * course.min_available
    last: ScheduledEvent | None = None
    for event in sorted(own, key=lambda each: each.created_at):
        if last and last.ended_at and event.created_at < last.ended_at + course.soak:
            yield f"update domain {event.update_domain} beside {last.update_domain}"
        if (SET_SIZE - len(event.resources)) * 100 < needed:
            yield f"{len(event.resources)} of {SET_SIZE} are away"
        last = event


def _unplanned(events: Iterable[ScheduledEvent], plan: Plan) -> Iterator[str]:
    """No event takes more of its set than was planned, or takes place at another time."""
    least = {capacity.scope_id: capacity.available for capacity in plan.capacities}
    times = {
        share.resources: (step.earliest, step.latest)
        for step in plan.steps
        for share in step.shares
    }
    for event in events:
        if SET_SIZE - len(event.resources) < least[event.scope_id]:
            yield f"{event.event_id} takes more than was planned"
        earliest, latest = times[event.resources]
        if earliest and event.created_at < earliest.begins:
            yield f"{event.event_id} begins earlier than at the earliest"
        if latest and latest.ends and event.ended_at and event.ended_at > latest.ends:
            yield f"{event.event_id} ends later than at the latest"


def _left_out(report: MaintenanceReport) -> Iterator[str]:
    """Every machine is done once, or its set is held for a reason."""
    done = [vm for event in report.events for vm in event.resources]
    if len(done) != len(set(done)):
        yield "a machine was done twice"
    held = {failure.place for failure in report.failures}
    waiting = {scope_id for stage in report.stages for scope_id in stage.step.scope_ids}
    for scope_id in waiting - held:
        yield f"{scope_id} is left out without a reason"
    missing = SETS * SET_SIZE - len(done)
    if missing != sum(len(s.resources) for stage in report.stages for s in stage.step.shares):
        yield f"{missing} machines were skipped"
    if report.status is not MaintenanceStatus.HELD:
        yield f"it is {report.status}, though machines failed"


if __name__ == "__main__":
    run(main)
