"""Places in which an older Maintenance begins a step first."""

import pytest

from forewarn.domain.blockers import BlockerKind
from forewarn.domain.brakes import taken_places
from forewarn.domain.maintenance import Step
from forewarn.domain.names import HostName


@pytest.mark.parametrize(
    ("taken", "held"),
    [((), []), ((HostName("kvm-2"),), []), ((HostName("kvm-1"),), [BlockerKind.BUSY_HOST])],
)
def test_host_that_an_older_maintenance_takes_holds_a_step(
    taken: tuple[HostName, ...], held: list[BlockerKind]
) -> None:
    step = Step(host=HostName("kvm-1"), shares=())

    assert [each.kind for each in taken_places(step, taken)] == held
