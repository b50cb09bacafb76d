from dataclasses import replace
from datetime import datetime

from forewarn.domain.event import ScheduledEvent, start
from forewarn.domain.impact import Impact, ImpactStatus
from forewarn.domain.names import VmName
from forewarn.domain.precedence import needing_somebody
from forewarn.domain.snapshot import Snapshot
from forewarn.domain.topology import Topology
from forewarn.protocol.vocabulary import EventId

VM = VmName("web-0")
BY_HAND = Impact(status=ImpactStatus.RUNNING, is_by_hand=True)
NOT_BEGUN = Impact(status=ImpactStatus.NOT_BEGUN)


def test_impact_behind_one_by_hand_needs_that_to_be_completed(
    event: ScheduledEvent, fleet: Topology, now: datetime
) -> None:
    first = replace(start(event, now=now), resources=(VM,))
    second = replace(first, event_id=EventId("E2"))
    seen = Snapshot(
        topology=fleet,
        events={each.event_id: each for each in (first, second)},
        impacts={(first.event_id, VM): BY_HAND, (second.event_id, VM): NOT_BEGUN},
    )

    assert needing_somebody(first, seen) == needing_somebody(second, seen) == (first.event_id,)


def test_event_behind_one_that_ends_by_itself_needs_nobody(
    event: ScheduledEvent, fleet: Topology, now: datetime
) -> None:
    first = replace(start(event, now=now), resources=(VM,))
    second = replace(event, event_id=EventId("E2"))
    seen = Snapshot(topology=fleet, events={each.event_id: each for each in (first, second)})

    assert needing_somebody(second, seen) == ()
