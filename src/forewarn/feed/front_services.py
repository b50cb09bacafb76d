"""What the server does for its fronts and for relays."""

import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from hashlib import sha256

from forewarn.domain.access import Principal
from forewarn.domain.names import HostName, VmName
from forewarn.domain.roles import Role
from forewarn.feed.hub import Hub
from forewarn.ports.metrics import Tally
from forewarn.ports.verbs import Verbs


class FrontPasses:
    """The secrets that fronts of this server show, for as long as it runs; in memory only."""

    def __init__(self) -> None:
        self._principals: dict[bytes, Principal] = {}

    def issue(self, name: str) -> str:
        """Return a new secret for the front called *name*; one that it had before ends."""
        for known, principal in tuple(self._principals.items()):
            if principal.name == name:
                del self._principals[known]
        secret = secrets.token_urlsafe(32)
        self._principals[_digest(secret)] = Principal(name=name, role=Role.RELAY)
        return secret

    def identify(self, secret: str) -> Principal | None:
        """Return which front has *secret*."""
        return self._principals.get(_digest(secret))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class FrontServices:
    """*verbs* are those of the machines of one host, or of all; *polled* notes who has polled."""

    hub: Hub
    verbs: Callable[[HostName | None], Verbs]
    polled: Callable[[Iterable[VmName]], None]
    tally: Tally
    passes: FrontPasses = field(default_factory=FrontPasses)


def _digest(secret: str) -> bytes:
    # Looked up by its hash, so that the time it takes tells nothing about the secret.
    return sha256(secret.encode()).digest()
