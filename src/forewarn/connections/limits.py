"""How long we wait for what, and how much we take."""

from dataclasses import dataclass, field
from typing import Final

CONNECTIONS_WITHOUT_LIMIT: Final = 100_000


def metadata_connections() -> int:
    """Return how many connections virtual machines get: all that operators leave."""
    return connections_within_open_files() - operator_connections()


def operator_connections() -> int:
    """Return how many connections operators get, which virtual machines cannot take."""
    return min(connections_within_open_files() // 4, 256)


def operator_limits() -> "Limits":
    """Return the limits of the control listener: a fleet takes longer to send than an approval."""
    share = operator_connections()
    return Limits(
        body_seconds=60,
        effort_of_a_task=32,
        connections=share,
        connections_per_origin=max(share // 2, 4),
    )


def connections_within_open_files() -> int:
    """Return how many connections leave room for the files that everything else opens."""
    try:
        import resource  # noqa: PLC0415  not on Windows
    except ImportError:
        return CONNECTIONS_WITHOUT_LIMIT
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return CONNECTIONS_WITHOUT_LIMIT
    return max(limit - max(limit // 10, 64), 16)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How long we wait for what, in seconds, and how much we take."""

    head_seconds: float = 10
    body_seconds: float = 10
    write_seconds: float = 30
    idle_seconds: int = 300
    head_bytes: int = 32 * 1024
    headers: int = 100
    queued_requests: int = 8
    held_bytes: int = 64 * 1024
    discarded_bytes: int = 256 * 1024
    effort_of_a_task: int = 12
    connections: int = field(default_factory=metadata_connections)
    connections_per_origin: int = field(
        default_factory=lambda: max(metadata_connections() // 4, 64)
    )
