from datetime import datetime

import pytest

from forewarn.domain.errors import InvalidNameError
from forewarn.domain.impact import Impact, ImpactStatus
from forewarn.domain.names import HostName


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


def test_machine_is_moved_to_a_host_that_can_be_called_so() -> None:
    with pytest.raises(InvalidNameError):
        Impact(status=ImpactStatus.DONE, moved_to=HostName("kvm 2"))
