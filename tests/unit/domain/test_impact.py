from datetime import datetime

import pytest

from forewarn.domain.impact import Impact, ImpactStatus


@pytest.mark.parametrize("status", ImpactStatus)
@pytest.mark.parametrize("is_asked_again", [True, False])
@pytest.mark.parametrize("is_by_hand", [True, False])
def test_impact_needs_somebody_if_nothing_is_heard_of_it_any_more(
    status: ImpactStatus, now: datetime, *, is_asked_again: bool, is_by_hand: bool
) -> None:
    again = now if is_asked_again else None
    impact = Impact(status=status, ask_again_at=again, is_by_hand=is_by_hand)

    assert impact.is_lost is (status is ImpactStatus.UNKNOWN)
    assert impact.needs_somebody is (is_by_hand or (impact.is_lost and not is_asked_again))
