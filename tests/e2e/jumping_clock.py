"""Run a command of forewarn on a machine whose clock is ahead by the seconds in a file."""

import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

from forewarn.cli import main
from forewarn.clocks import SystemClock

ahead, sys.argv = Path(sys.argv[1]), sys.argv[2:]


class JumpingClock(SystemClock):
    """The time of day, and what the file says."""

    def now(self) -> datetime:
        return datetime.now(UTC) + timedelta(seconds=float(ahead.read_text("ascii")))  # noqa: TID251


SystemClock.now = JumpingClock.now  # type: ignore[method-assign, assignment]
main()
