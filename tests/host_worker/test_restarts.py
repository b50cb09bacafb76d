"""What a restart of the host means for a task that was running."""

import pytest

from forewarn.domain.impact import Impact, ImpactStatus
from forewarn.host_worker.restarts import judge

RUNNING = Impact(status=ImpactStatus.RUNNING, reason="60 %")
DONE = Impact(status=ImpactStatus.DONE)
FAILED = Impact(status=ImpactStatus.FAILED, reason="exit code 3: no disk")
ENDED = Impact(status=ImpactStatus.FAILED, reason="ended by signal 15: 60 %")
LOST = Impact(status=ImpactStatus.UNKNOWN, reason="the process stopped")
RESTARTED = Impact(
    status=ImpactStatus.UNKNOWN,
    reason="the host restarted before it ended; check the host, then settle the task",
)


def begun(*, boot: str, restarts: bool) -> dict[str, object]:
    return {"boot_id": boot, "restarts_host": restarts}


@pytest.mark.parametrize("impact", [RUNNING, DONE, FAILED, ENDED, LOST])
@pytest.mark.parametrize("restarts", [True, False])
def test_without_a_restart_it_is_what_it_is(impact: Impact, *, restarts: bool) -> None:
    assert judge(impact, begun(boot="a", restarts=restarts), "a") == impact


def test_what_left_no_record_is_what_it_is() -> None:
    assert judge(LOST, None, "a") == LOST


@pytest.mark.parametrize(
    ("impact", "restarts", "said"),
    [
        (LOST, False, RESTARTED),
        (ENDED, False, RESTARTED),
        (DONE, False, DONE),
        (FAILED, False, FAILED),
        (LOST, True, DONE),
        (ENDED, True, DONE),
        (DONE, True, DONE),
        (FAILED, True, FAILED),
    ],
)
def test_restart_ends_what_was_running(impact: Impact, said: Impact, *, restarts: bool) -> None:
    assert judge(impact, begun(boot="a", restarts=restarts), "b") == said
