"""`forewarn`, but at a point that is named it sends itself a signal, once, if a file is there.

Points of the leader: `record`, inside the transaction that would write its decisions, and `begin`,
after that transaction and before the executor is told.
"""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from forewarn.cli import main
from forewarn.executors.impacts import ContractedExecutor
from forewarn.scheduler import scheduler


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
        recording = stop_before(scheduler.decide_and_record, Path(marker), number)
        scheduler.decide_and_record = recording
    else:
        beginning = stop_before(ContractedExecutor.begin, Path(marker), number)
        ContractedExecutor.begin = beginning  # type: ignore[method-assign]
    sys.argv = ["forewarn", *arguments]
    main()
