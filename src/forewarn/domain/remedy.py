"""What somebody could do about something that holds: a verb, and the ids it takes.

How it is done depends on where they read it: on a terminal it is a command, in a console a button.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeAlias


class Verb(StrEnum):
    """What an operator can do about something."""

    RESUME_SERVER = "server resume"
    RESUME = "maintenance resume"
    RETRY = "maintenance retry"
    SKIP = "maintenance skip"
    ABORT = "maintenance abort"
    START = "event start"
    COMPLETE = "event complete"
    SETTLE_DONE = "task settle done"
    SETTLE_FAILED = "task settle failed"
    MOVE_AWAY = "move away"
    CORRECT_EXECUTORS = "correct executors"
    ASK_OTHERS = "ask others"


OF_MAINTENANCES: Final = frozenset({Verb.RESUME, Verb.RETRY, Verb.SKIP, Verb.ABORT})
"""What is done to a Maintenance, or to one of its places."""
OF_EVENTS: Final = frozenset({Verb.START, Verb.COMPLETE})
"""What is done to one event at a time."""
OF_TASKS: Final = frozenset({Verb.SETTLE_DONE, Verb.SETTLE_FAILED})
"""What is said of one task at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """One thing to do, to what has these *ids*: a Maintenance and its place, events, a host."""

    verb: Verb
    ids: tuple[str, ...] = ()


Remedies: TypeAlias = tuple[tuple[Remedy, ...], ...]
"""What has to be done: all of these, each of which is a choice of one or more."""
