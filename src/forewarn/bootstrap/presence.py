"""A replica among others on the same database: who it is, what all agree on, and that it lives."""

import socket
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Final

import structlog

from forewarn.bootstrap.supervision import Supervisor
from forewarn.commit import version_with_commit
from forewarn.ports.replicas import ReplicaIdentity, Replicas
from forewarn.rounds import Rounds
from forewarn.settings import Settings
from forewarn.wording.durations import parse_duration

log = structlog.get_logger()

_BEAT_SECONDS: Final = 1.0
_COMMON: Final = (
    "notice",
    "speed",
    "executor",
    "user_initiated_limit",
    "document_retention",
    "history_retention",
)
"""The settings that should be the same on all replicas of a database."""


@contextmanager
def heart_beating(replicas: Replicas, supervisor: Supervisor) -> Iterator[None]:
    """Have it said every second meanwhile that this replica is there."""
    thread = supervisor.start("replica", Rounds("replica", replicas.report, every=_BEAT_SECONDS))
    try:
        yield
    finally:
        thread.stop()
        thread.join()


def introduce(settings: Settings, address: str) -> ReplicaIdentity:
    """Return who a server at *address* is to other replicas; nobody has been it before."""
    return ReplicaIdentity(
        replica_id=uuid.uuid4().hex,
        name=socket.gethostname(),
        address=address,
        version=version_with_commit(),
        settings={name: str(getattr(settings, name) or "") for name in _COMMON},
    )


def longest_history(replicas: Replicas) -> timedelta | None:
    """Return the longest `history_retention` of all replicas; None if one of them has none.

    So no replica forgets what the settings of another one keep.
    """
    known = [replicas.itself, *(each.identity for each in replicas.call_roll().replicas)]
    kept = [each.settings.get("history_retention", "") for each in known]
    return max(map(parse_duration, kept)) if all(kept) else None


def check_agreement(replicas: Replicas) -> None:
    """Log which settings differ from those of the replicas that are serving already.

    Two that start together have both reported before, so at least one of them sees the other.
    """
    ours = replicas.itself.settings
    for theirs in (other.identity for other in replicas.call_roll().present):
        differing = {name for name in ours if theirs.settings.get(name, ours[name]) != ours[name]}
        if differing:
            log.warning(
                "settings_differ",
                settings=sorted(differing),
                replica=theirs.name,
                address=theirs.address,
            )
