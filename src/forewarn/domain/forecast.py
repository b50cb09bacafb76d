"""How long the steps of a Maintenance take: by the rules, and as events of the past have taken.

Both give a `Timing` for each scope, and a plan is made with either.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from math import ceil
from typing import Final, TypeAlias

from forewarn.domain.event import Outcome, ScheduledEvent
from forewarn.domain.names import ScopeId
from forewarn.protocol.vocabulary import EventSource

LEAST_SAMPLES: Final = 10
"""How many events tell something about the next; a scope with fewer is taken for an average one."""
LOW: Final = 10
HIGH: Final = 90
"""The percentiles a forecast lies between."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """How long an event waits until it starts, and how long its impact lasts, if that is known."""

    waits: timedelta
    lasts: timedelta | None


Timings: TypeAlias = Callable[[ScopeId], Timing]
"""What is expected of the events of each scope."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """How long one event of the past took: *waited* for approval or NotBefore, then *lasted*."""

    scope_id: ScopeId
    waited: timedelta
    lasted: timedelta


def measure(events: Iterable[ScheduledEvent]) -> tuple[Sample, ...]:
    """Return how long each of *events* took that was announced by the platform and ended well."""
    return tuple(
        Sample(
            scope_id=event.scope_id,
            waited=event.started_at - event.created_at,
            lasted=event.ended_at - event.started_at,
        )
        for event in events
        if event.event_source is EventSource.PLATFORM
        and event.is_announced
        and event.outcome is Outcome.SUCCEEDED
        and event.started_at is not None
        and event.ended_at is not None
    )


def expect(samples: Sequence[Sample], percent: int) -> Timings | None:
    """Return the *percent* percentile of *samples* of each scope; None if they are too few.

    A scope with too few of its own is expected to take what all of them took.
    """
    if len(samples) < LEAST_SAMPLES:
        return None
    of_scopes: dict[ScopeId, list[Sample]] = {}
    for sample in samples:
        of_scopes.setdefault(sample.scope_id, []).append(sample)
    known: Mapping[ScopeId, Timing] = {
        scope_id: _percentile(own, percent)
        for scope_id, own in of_scopes.items()
        if len(own) >= LEAST_SAMPLES
    }
    of_all = _percentile(samples, percent)
    return lambda scope_id: known.get(scope_id, of_all)


def _percentile(samples: Sequence[Sample], percent: int) -> Timing:
    # The nearest rank: what really happened to somebody, nothing in between.
    index = ceil(len(samples) * percent / 100) - 1
    return Timing(
        waits=sorted(sample.waited for sample in samples)[index],
        lasts=sorted(sample.lasted for sample in samples)[index],
    )
