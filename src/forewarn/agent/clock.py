"""The time: the one place of the agent that looks at a clock."""

import time
from datetime import UTC, datetime

from forewarn.agent.decisions import Now


def read_clock() -> Now:
    """Return this moment."""
    return Now(wall=datetime.now(UTC), steady=time.monotonic())
