"""How a Maintenance goes about it: what comes first, how much at once, and what it waits for."""

from dataclasses import dataclass, field, fields
from datetime import timedelta
from typing import Final

from forewarn.domain.windows import ALWAYS, Calendar, describe

GATE_PATIENCE: Final = timedelta(hours=1)
"""How long a gate may stay shut by default before the step behind it is held."""
FIXED: Final = frozenset({"canary"})
"""What does not change once a Maintenance is under way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """What the steps of a Maintenance wait for, beside each other.

    - *canary*: scopes or hosts whose steps all end well before any other begins.
    - *at_once*: in how many scopes it is under way at the same time (by host: on how many hosts).
    - *soak*: how long a scope is left alone after a step before its next, and everybody else after
      the last canary.
    - *min_available*: the percentage of a set that is not in any event in flight, at least. It says
      nothing about standalone virtual machines, for which there are no others.
    - *gates*: names of gates, each asked before every step but the first; one that stays shut for
      *gate_patience*, to whichever of them, holds the step until somebody resumes.
    - *calendar*: a step begins only where notice and impact fit in. With *notice_outside* only the
      impact has to: it starts inside, and is announced before.
    - *in_order*: no step goes before an earlier one that shares a scope with it, whatever holds it.
    - *hold_all*: one failure holds everything, not only its own scopes.
    """

    canary: tuple[str, ...] = ()
    at_once: int | None = field(default=None, metadata={"ge": 1})
    soak: timedelta = timedelta(0)
    min_available: int = field(default=0, metadata={"ge": 0, "le": 100})
    gates: tuple[str, ...] = ()
    gate_patience: timedelta = GATE_PATIENCE
    calendar: Calendar = ALWAYS
    hold_all: bool = True
    in_order: bool = False
    notice_outside: bool = False


def knobs_of(course: Course) -> dict[str, object]:
    """Return every field of *course* by its name; both parts of the calendar as people write them.

    Whoever shows a course or tells of a change does so for each of these.
    """
    knobs: dict[str, object] = {}
    for knob in fields(course):
        value = getattr(course, knob.name)
        if isinstance(value, Calendar):
            knobs["windows"] = tuple(map(describe, value.windows))
            knobs["blackouts"] = tuple(map(describe, value.blackouts))
        else:
            knobs[knob.name] = value
    return knobs
