"""`forewarn`, but at a point of its work it sends itself a signal, once, if a file says so.

The file has the point, the signal and the process that is meant. Points of the leader: `record`,
inside the transaction that would write its decisions, and `begin`, after that transaction and
before the runner is told. Of the owner of a task: `claim`, after it has committed that the task
begins, and before it records that on disk; and `report`, inside the transaction that would write
down that a task has ended. Of any replica: `write`, inside the transaction that changes an event.
"""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from forewarn.cli import main
from forewarn.executors import watcher
from forewarn.executors.processes import ProcessRunner
from forewarn.executors.task_log import TaskLog
from forewarn.scheduler import scheduler
from forewarn.storage.transaction import SqlTransaction

POINTS: dict[str, tuple[object, str]] = {
    "record": (scheduler, "decide_and_record"),
    "begin": (ProcessRunner, "begin"),
    "claim": (TaskLog, "claim"),
    "report": (watcher, "report_tasks"),
    "write": (SqlTransaction, "put_event"),
}
"""What is called after the signal."""


def stop_before(function: Callable[..., Any], point: str, order: Path) -> Callable[..., Any]:
    """Return *function*, before which the signal comes if *order* says so."""

    def stopping(*arguments: Any, **options: Any) -> Any:
        words = order.read_text(encoding="ascii").split() if order.exists() else []
        is_meant = words[::2] == [point, str(os.getpid())]
        if is_meant and is_reached(point, [*arguments, *options.values()]):
            order.unlink()
            os.kill(os.getpid(), signal.Signals[words[1]])
        return function(*arguments, **options)

    return stopping


def is_reached(point: str, values: list[Any]) -> bool:
    """Tell whether the call with these *values* is the one that is meant."""
    return point != "report" or any(said.is_over for _, said in values[2])


if __name__ == "__main__":
    given, *words = sys.argv[1:]
    for point, (owner, name) in POINTS.items():
        setattr(owner, name, stop_before(getattr(owner, name), point, Path(given)))
    sys.argv = ["forewarn", *words]
    main()
