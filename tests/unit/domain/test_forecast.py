from dataclasses import replace
from datetime import datetime, timedelta

from forewarn.domain.event import Draft, Outcome, ScheduledEvent, complete, start, start_unannounced
from forewarn.domain.names import ScopeId
from forewarn.domain.timetable import LEAST_SAMPLES, Sample, Timing, expect, measure
from forewarn.protocol.vocabulary import EventId, EventSource

WEB = ScopeId("availability-set/web")
DB = ScopeId("availability-set/db")


def minutes(number: float) -> timedelta:
    return timedelta(minutes=number)


def ended(event: ScheduledEvent, *, waited: int, lasted: int) -> ScheduledEvent:
    begun = event.created_at + minutes(waited)
    return complete(start(event, now=begun), outcome=Outcome.SUCCEEDED, now=begun + minutes(lasted))


def samples(scope_id: ScopeId, *waits: float) -> list[Sample]:
    return [
        Sample(scope_id=scope_id, waited=minutes(wait), lasted=minutes(2 * wait)) for wait in waits
    ]


def test_event_is_measured_from_its_announcement_to_its_start_and_to_its_end(
    event: ScheduledEvent,
) -> None:
    (sample,) = measure([ended(event, waited=4, lasted=9)])

    assert sample == Sample(scope_id=WEB, waited=minutes(4), lasted=minutes(9))


def test_only_what_was_announced_by_the_platform_and_ended_well_is_measured(
    event: ScheduledEvent, draft: Draft, now: datetime
) -> None:
    good = ended(event, waited=1, lasted=1)
    failure = start_unannounced(draft, event_id=EventId("E2"), now=now)

    assert not measure(
        [
            event,
            start(event, now=now),
            replace(good, outcome=Outcome.FAILED),
            replace(good, event_source=EventSource.USER),
            complete(failure, outcome=Outcome.SUCCEEDED, now=now),
        ]
    )


def test_a_tenth_took_no_longer_than_the_tenth_percentile() -> None:
    of_web = samples(WEB, *range(1, 101))

    low, high = expect(of_web, 10), expect(of_web, 90)

    assert low
    assert high
    assert low(WEB) == Timing(waits=minutes(10), lasts=minutes(20))
    assert high(WEB) == Timing(waits=minutes(90), lasts=minutes(180))


def test_scope_with_a_history_of_its_own_is_expected_to_go_on_like_that() -> None:
    timings = expect([*samples(WEB, *[1] * 50), *samples(DB, *[7] * LEAST_SAMPLES)], 50)

    assert timings
    assert timings(DB).waits == minutes(7)


def test_scope_with_too_little_history_is_taken_for_an_average_one() -> None:
    timings = expect([*samples(WEB, *[1] * 50), *samples(DB, *[7] * (LEAST_SAMPLES - 1))], 50)

    assert timings
    assert timings(DB).waits == minutes(1)


def test_too_few_samples_tell_nothing() -> None:
    assert expect(samples(WEB, *[1] * (LEAST_SAMPLES - 1)), 50) is None
