"""What it means for a task that the host restarted while it ran."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from forewarn.domain.host_work import HostTaskKind
from forewarn.domain.impact import Impact, ImpactStatus
from forewarn.executors.attendant import BY_SIGNAL
from forewarn.executors.command import SCRIPTS, Command
from forewarn.executors.processes import ProcessProgram
from forewarn.executors.task_input import TaskInput

BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")

_RESTARTED: Final = "the host restarted before it ended; check the host, then settle the task"


def scripts_of_boot(boot_id: str, *, restarts_host: bool) -> ProcessProgram[Command]:
    """Return how programs are run in this boot, so that a later one knows.

    Only the work itself *restarts_host*, if so.
    """
    describe: Callable[[TaskInput, Command], Mapping[str, object]] = SCRIPTS.describe

    def describe_in_boot(task: TaskInput, command: Command) -> Mapping[str, object]:
        is_work = task.kind is HostTaskKind.WORK
        about = {"boot_id": boot_id, "restarts_host": restarts_host and is_work}
        return {**describe(task, command), **about}

    return replace(SCRIPTS, describe=describe_in_boot)


def judge(impact: Impact, begun: Mapping[str, Any] | None, boot_id: str) -> Impact:
    """Return what to report of a task that *begun* describes, in the boot *boot_id*."""
    if begun is None or begun["boot_id"] == boot_id:
        return impact
    # Whatever runs when a host goes down is ended by a signal, and sometimes that is noted.
    is_cut_short = impact.is_lost or (
        impact.status is ImpactStatus.FAILED and impact.reason.startswith(BY_SIGNAL)
    )
    if not is_cut_short:
        return impact
    if begun["restarts_host"]:
        return Impact(status=ImpactStatus.DONE)
    return Impact(status=ImpactStatus.UNKNOWN, reason=_RESTARTED)
