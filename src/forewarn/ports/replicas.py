"""Which replicas serve one store, as each of them says of itself. All times are the store's own."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from forewarn.domain.finding import Finding
from forewarn.domain.task import SILENT_AFTER


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaIdentity:
    """Who a replica is: its *name* is that of its host, its *address* that of its control API.

    *settings* are those that all replicas should agree on.
    """

    replica_id: str
    name: str
    address: str
    version: str
    settings: Mapping[str, str]

    @property
    def node(self) -> str:
        """The state directory that it serves with."""
        return self.replica_id.partition("/")[0]


def name_replica(node: str, unique: str) -> str:
    """Return the id of a replica on *node*; all that serve with the same files begin alike."""
    return f"{node}/{unique}"


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownReplica:
    """A replica, as it was when it last reported.

    By then *changes_behind* changes had been committed that its listeners were not told of, the
    first of them *lag* before. *findings* are what was wrong with it.
    """

    identity: ReplicaIdentity
    started_at: datetime
    seen_at: datetime
    is_leader: bool
    changes_behind: int = 0
    lag: timedelta = timedelta(0)
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RollCall:
    """All replicas at the moment *at*, those that ended without notice included; by name.

    *epoch* is the number of the last lease, whether or not somebody holds it.
    """

    at: datetime
    epoch: int
    replicas: tuple[KnownReplica, ...]

    @property
    def present(self) -> tuple[KnownReplica, ...]:
        """Those that are there, as far as anybody can tell."""
        return tuple(each for each in self.replicas if self.at - each.seen_at < SILENT_AFTER)


class Replicas(Protocol):
    """One replica among the others; called on any thread."""

    itself: ReplicaIdentity
    """Who this one is."""
    generation: int
    """That of the state directory when this one became an owner of tasks: see `Owner`."""
    examine: Callable[[], Iterable[Finding]]
    """Yields what is wrong with this replica, for its report."""

    def report(self) -> None:
        """Say that this replica is there, and which changes it knows."""

    def leave(self) -> None:
        """Say that this replica ends."""

    def call_roll(self) -> RollCall:
        """Return all that are there."""

    def is_following(self) -> bool:
        """Tell whether this replica hears what the others change."""
