"""What every source of virtual machines has in common."""

import threading
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from forewarn.operations.reconciling import Census, Terms
from forewarn.protocol.errors import ForewarnError


class SourceError(ForewarnError):
    """A source that has not answered, or not with a fleet; the sentence is for operators.

    *reason* is what it has said itself before it gave up.
    """

    def __init__(self, problem: str, reason: str = "") -> None:
        super().__init__(f"{reason} {problem}" if reason else problem)
        self.reason = reason


class MachineSource(Protocol):
    """Whoever knows which virtual machines there are."""

    def count(self, stopping: threading.Event) -> Census:
        """Return the machines there are, or raise a `SourceError`.

        It takes a limited time, and ends soon after *stopping* is set.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownSource:
    """A source as the file of sources has it, and how often it is asked."""

    name: str
    kind: str
    source: MachineSource
    every: timedelta
    terms: Terms
