"""The agent's own words. Those of the wire are in `forewarn.protocol.vocabulary`."""

from enum import StrEnum
from typing import Final


class RuleVerdict(StrEnum):
    """What a rule says is to be done about an event."""

    IGNORE = "ignore"
    """One line in the log."""
    NOTIFY = "notify"
    """A warning in the log, and the hooks of `notify.d`."""
    HANDLE = "handle"
    """The hooks of every phase, and the approval."""


class HookPhase(StrEnum):
    """What hooks are run for: each has a folder, and a key in the configuration."""

    SCHEDULED = "scheduled"
    STARTED = "started"
    RECOVERED = "recovered"
    CANCELED = "canceled"
    NOTIFY = "notify"


ENDS: Final = frozenset({HookPhase.RECOVERED, HookPhase.CANCELED})
"""The phases in which things are put back: an event that is in one of them is gone."""


class HookOutcome(StrEnum):
    """What came of a hook."""

    RUNNING = "running"
    READY = "ready"
    NOT_YET = "not-yet"
    FAILED = "failed"
    TIMED_OUT = "timed-out"
    STOPPED = "stopped"
    """It was ended because its phase was over; if the phase comes back, it is run again."""
    INTERRUPTED = "interrupted"
    """It was running when the agent was killed; nobody knows how far it got."""


FAILURES: Final = frozenset({HookOutcome.FAILED, HookOutcome.TIMED_OUT, HookOutcome.INTERRUPTED})


class ApprovalMode(StrEnum):
    """When this machine requests the start of an event."""

    NEVER = "never"
    WHEN_READY = "when-ready"
    LEADER = "leader"
    """When it is ready, and the first of the event's Resources."""


class Consent(StrEnum):
    """Whether the start of an event was requested."""

    OPEN = "open"
    GIVEN = "given"
    REFUSED = "refused"
    """The server did not take it; asking again would not help."""
