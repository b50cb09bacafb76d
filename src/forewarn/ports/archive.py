"""What is kept outside of the store, and removed with what it is about."""

from collections.abc import Callable
from datetime import datetime
from typing import Protocol


class Archive(Protocol):
    """Records that executors keep on disk, of one kind."""

    @property
    def name(self) -> str:
        """What the log calls them."""

    def remove_ended(self, before: datetime, *, pause: Callable[[], bool]) -> int:
        """Remove the records of what ended before then, and tell of how many that was.

        Between batches it makes a *pause*, which tells whether that is all for now.
        """
