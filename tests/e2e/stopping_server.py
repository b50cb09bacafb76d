"""`forewarn`, but at a point that is named it sends itself a signal, once, if a file is there.

Points of the leader: `record`, inside the transaction that would write its decisions, and `begin`,
after that transaction and before the runner is told. Of the owner of a task: `claim`, after it has
committed that the task begins, and before it records that on disk. Of any replica: `write`, inside
the transaction that announces an event.
"""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from forewarn.cli import main
from forewarn.executors.processes import ProcessRunner
from forewarn.executors.task_log import TaskLog
from forewarn.scheduler import scheduler
from forewarn.scheduler.tick import decide_and_record
from forewarn.storage.transaction import SqlTransaction


def stop_before(function: Callable[..., Any], marker: Path, number: int) -> Callable[..., Any]:
    """Return *function*, before which the signal comes if *marker* is there."""

    def stopping(*arguments: Any, **options: Any) -> Any:
        if marker.exists():
            marker.unlink()
            os.kill(os.getpid(), number)
        return function(*arguments, **options)

    return stopping


if __name__ == "__main__":
    point, name, marker, *arguments = sys.argv[1:]
    number = signal.Signals[name]
    if point == "record":
        recording = stop_before(decide_and_record, Path(marker), number)
        setattr(scheduler, "decide_and_record", recording)  # noqa: B010 - it is not exported
    elif point == "write":
        writing = stop_before(SqlTransaction.put_event, Path(marker), number)
        setattr(SqlTransaction, "put_event", writing)  # noqa: B010 - a method cannot be assigned
    elif point == "claim":
        claiming = stop_before(TaskLog.claim, Path(marker), number)
        setattr(TaskLog, "claim", claiming)  # noqa: B010 - a method cannot be assigned
    else:
        beginning = stop_before(ProcessRunner.begin, Path(marker), number)
        setattr(ProcessRunner, "begin", beginning)  # noqa: B010 - a method cannot be assigned
    sys.argv = ["forewarn", *arguments]
    main()
