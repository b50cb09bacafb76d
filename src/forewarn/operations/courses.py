"""Changing how a Maintenance goes about it while it is under way."""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from forewarn.domain.course import Course, knobs_of
from forewarn.domain.maintenance import (
    Maintenance,
    Step,
    check_under_way,
    plan_errors,
    remaining_steps,
    set_course,
    soaks_until,
)
from forewarn.domain.names import ScopeId
from forewarn.domain.snapshot import Snapshot
from forewarn.domain.walk import calendar_errors
from forewarn.operations.context import Context
from forewarn.operations.gates import find_gate
from forewarn.operations.maintenances import find_maintenance
from forewarn.operations.recording import record_audit
from forewarn.operations.snapshots import look
from forewarn.ports.store import Transaction
from forewarn.protocol.errors import ForewarnError
from forewarn.wording.durations import format_duration

_WORDS: Final[Mapping[str, tuple[str, Callable[[object], str]]]] = {
    "min_available": ("min available", "{} %".format),
    "notice_outside": ("notice", lambda outside: "outside" if outside else "inside"),
}
"""Names and words that say more than those of the field."""


def change_course(
    tx: Transaction,
    context: Context,
    maintenance_id: str,
    change: Callable[[Course], Course],
    *,
    gates: Collection[str] = (),
) -> None:
    """Go on by the changed course, or refuse one that the remaining steps cannot be walked by.

    What is announced keeps its notice, and has to fit into the calendar. *gates* are those that the
    server knows.
    """
    maintenance = find_maintenance(tx, maintenance_id)
    check_under_way(maintenance)
    course = change(maintenance.course)
    if course.gates != maintenance.course.gates:
        found = (find_gate(gates, name) for name in course.gates)
        course = replace(course, gates=tuple(dict.fromkeys(found)))
    changed = set_course(maintenance, course)
    of_it = [maintenance.maintenance_id]
    snapshot = look(tx, context)
    steps = remaining_steps(
        changed, snapshot.topology, tx.events_of(of_it), tx.operations_of(of_it)
    )
    # What was wrong before, such as a host that has become shared, is not for this to mend.
    known = {str(error) for error in _errors(maintenance, steps, snapshot, context)}
    for error in _errors(changed, steps, snapshot, context):
        if str(error) not in known:
            raise error
    said = describe_course_change(maintenance.course, changed.course)
    if said:
        tx.put_maintenance(changed)
        _change_soaks(tx, context, maintenance, changed)
        record_audit(tx, context, "maintenance set", maintenance_id, detail=said)


def describe_course_change(before: Course, after: Course) -> str:
    """Return what differs, name by name, or nothing."""
    old, new = _describe(before), _describe(after)
    return "; ".join(f"{name}: {old[name]} → {new[name]}" for name in old if old[name] != new[name])


def _change_soaks(
    tx: Transaction, context: Context, before: Maintenance, after: Maintenance
) -> None:
    """Leave scopes alone for as long as it says now, unless another Maintenance says longer."""
    if before.course.soak == after.course.soak:
        return
    known, speed = tx.soaks(), context.rules.speed
    ends: dict[ScopeId, tuple[datetime, datetime]] = {}
    for event in tx.events_of([before.maintenance_id]):
        if event.outcome is not None:
            end = (
                soaks_until(before, event, speed=speed),
                soaks_until(after, event, speed=speed),
            )
            # Events of one scope may have ended in another order than they were announced in.
            ends[event.scope_id] = max(ends.get(event.scope_id, end), end)
    for scope_id, (old, new) in ends.items():
        if known.get(scope_id, old) <= max(old, new):
            tx.put_soak(scope_id, new, at=context.now)


def _errors(
    maintenance: Maintenance, steps: tuple[Step, ...], snapshot: Snapshot, context: Context
) -> Iterator[ForewarnError]:
    yield from plan_errors(maintenance, snapshot.topology, steps)
    yield from calendar_errors(maintenance, steps, snapshot, context.now)


def _describe(course: Course) -> dict[str, str]:
    said: dict[str, str] = {}
    for name, value in knobs_of(course).items():
        label, say = _WORDS.get(name, (name.replace("_", " "), _say))
        said[label] = say(value)
    return said


def _say(value: object) -> str:
    match value:
        case None:
            return "any number"
        case bool():
            return "yes" if value else "no"
        case timedelta():
            return format_duration(value)
        case tuple():
            return ", ".join(value) or "none"
        case _:
            return str(value)
