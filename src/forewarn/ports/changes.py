"""The wake-ups inside the server: a hint at what a commit changed, never the thing itself."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeAlias

from forewarn.domain.names import ScopeId
from forewarn.domain.topology import Revision


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreChange:
    """What is new since a commit, for those who read from memory, watch, carry messages or decide.

    *incarnations* are those of the documents it published. Whoever wants more of anything reads it
    from the store, where more may have changed by then.
    """

    sequence: int = field(default=0, compare=False)
    """The number of the change, one more than that of the change before."""
    incarnations: Mapping[ScopeId, int] = field(default_factory=dict)
    topology_version: int | None = None
    """The number of the new topology, if there is one."""
    revises: int | None = field(default=None, compare=False)
    """The number of the topology before that."""
    revision: Revision | None = field(default=None, compare=False)
    """What is otherwise in the new topology, if that is little."""
    has_work: bool = False
    """Whether there is something that the scheduler has not recorded itself."""
    has_ledger_grown: bool = False
    has_outbox_grown: bool = False
    has_tasks: bool = False
    """Whether an owner may have a task to begin, or to look for in its records."""
    recorded_at: datetime | None = field(default=None, compare=False)
    """The moment from which on its documents are recorded as shown, and who reads them."""
    is_gap: bool = False
    """Whether nobody knows any more what changed, so that everything has to be read."""


ChangeListener: TypeAlias = Callable[[StoreChange], None]
"""Somebody who wants to know, called after the commit and before it is acknowledged.

It is called on the thread that committed, so it has to be quick. Whoever keeps a copy listens first
and reads then, and misses nothing.
"""
