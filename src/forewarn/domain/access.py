"""Who may do what: roles, the tokens that grant them, and the delivery scopes these may cover."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from forewarn.domain.errors import ConflictError, DomainError, InvalidError, NotFoundError, says
from forewarn.domain.names import HostName, ScopeId, check_name, name_key
from forewarn.domain.phrases import say_moment
from forewarn.domain.roles import Role
from forewarn.domain.topology import Topology


class AccessError(DomainError):
    """Somebody may not do this."""


class TokenExpiredError(AccessError):
    """A token whose time is over."""

    def __init__(self, name: str, expired_at: datetime) -> None:
        super().__init__(
            f"The token {name} expired on {say_moment(expired_at)}; ask for a new one."
        )
        self.name = name


class TokenRevokedError(AccessError):
    """A token that was taken back."""

    def __init__(self, name: str, revoked_at: datetime) -> None:
        super().__init__(
            f"The token {name} was revoked on {say_moment(revoked_at)}; ask for a new one."
        )
        self.name = name


@says("Unknown token. Check it, or ask an admin for a new one.")
class SignInTokenError(AccessError):
    """A token that signs nobody in: nobody was given it."""


@says("This sign-in link has expired or was already used; ask for a new one.")
class SignInLinkError(AccessError):
    """A link that signs nobody in: it is unknown, was used, or its time is over."""


@says(
    "The token {name} already has {limit} unused sign-in links. Use one of them, or wait until one "
    "expires."
)
class SignInLinksError(AccessError):
    """A link too many."""

    name: str
    limit: int


@says(
    "This browser is signed in as {name}, and the link is for {other}. Sign out of the console "
    "first, then open the link again."
)
class SignedInAsAnotherError(AccessError):
    """A link for somebody else: whoever sent it would have a person work under its name."""

    name: str
    other: str


@says("This needs the role {needed}; {name} has the role {role}.")
class RoleTooLowError(AccessError):
    """A role that may not do this."""

    name: str
    role: str
    needed: str


class OutsideScopesError(AccessError):
    """Virtual machines in other scopes than the token's."""

    def __init__(self, name: str, vms: Sequence[str]) -> None:
        super().__init__(
            f"This would also affect {', '.join(vms)}, and the token {name} is limited to other "
            "scopes. Use a token without this limit."
        )
        self.name = name
        self.vms = tuple(vms)


@says("There is no active token called {name!r}.")
class UnknownTokenError(NotFoundError):
    """A token nobody created, or revoked already."""

    name: str


@says("A token called {name!r} already exists; revoke it, or choose another name.")
class TokenNameTakenError(ConflictError):
    """Two live tokens of one name."""

    name: str


class TokenOrderError(InvalidError):
    """A token that cannot be as it was asked for."""


ADMIN: Final = "admin"
"""Who has the token that the server makes by itself."""
RESERVED_NAMES: Final = frozenset({ADMIN, "scheduler"})
"""Who these are is known already; a token of that name would make the audit say something else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """Somebody who has shown a token. Without *scopes*, they are not limited to any.

    A relay is confined to the virtual machines of its *host*.
    """

    name: str
    role: Role
    scopes: tuple[ScopeId, ...] = ()
    host: HostName | None = None

    def require(self, needed: Role) -> None:
        """Refuse unless their role is *needed* or a higher one."""
        if not self.role.includes(needed):
            raise RoleTooLowError(self.name, self.role, needed)

    def covers(self, scope_id: ScopeId) -> bool:
        """Tell whether what is in this delivery scope is theirs to see and change.

        A scale set covers its placement groups.
        """
        return not self.scopes or any(
            scope_id == scope or scope_id.startswith(f"{scope}/") for scope in self.scopes
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """What grants a role until it expires or is revoked. Times are real times.

    Of the secret itself only the hash is known.
    """

    name: str
    token_hash: str
    role: Role
    scopes: tuple[ScopeId, ...] = ()
    host: HostName | None = None
    created_at: datetime
    expires_at: datetime | None = None
    revoked_at: datetime | None = None
    last_used_at: datetime | None = None

    @property
    def principal(self) -> Principal:
        """Who shows it."""
        return Principal(name=self.name, role=self.role, scopes=self.scopes, host=self.host)

    def is_live(self, at: datetime) -> bool:
        """Tell whether it grants anything."""
        has_expired = self.expires_at is not None and at >= self.expires_at
        return self.revoked_at is None and not has_expired

    def check_live(self, at: datetime) -> None:
        """Refuse unless it grants something, and say why it does not."""
        if self.revoked_at is not None:
            raise TokenRevokedError(self.name, self.revoked_at)
        if self.expires_at is not None and at >= self.expires_at:
            raise TokenExpiredError(self.name, self.expires_at)


SESSION_IDLE: Final = timedelta(hours=1)
"""How long a browser stays signed in that nobody uses."""
LINK_LIFE: Final = timedelta(minutes=10)
"""How long a link can sign a browser in."""
LINKS_OF_A_TOKEN: Final = 10
"""How many links of one token can sign a browser in at the same time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleSession:
    """A browser that somebody signed in with, or a link that signs one in once.

    It grants what the token called *name*, with *token_hash*, grants at the moment. Of its own
    secret only the hash is known. A link is removed when it is used. Times are real times.
    """

    session_hash: str
    token_hash: str
    name: str
    is_link: bool
    created_at: datetime
    used_at: datetime

    @property
    def ends_at(self) -> datetime:
        """When it ends; later for a session that is used before."""
        return self.created_at + LINK_LIFE if self.is_link else self.used_at + SESSION_IDLE

    def is_live(self, at: datetime) -> bool:
        """Tell whether it has not ended."""
        return at < self.ends_at


def check_token(token: Token) -> None:
    """Refuse a name that is reserved or does not travel, a useless expiry, and a wrong limit."""
    check_name(token.name, "token")
    if name_key(token.name) in RESERVED_NAMES:
        raise TokenOrderError(
            f"The name {token.name} is reserved for the server; choose another name."
        )
    if token.expires_at is not None and token.expires_at <= token.created_at:
        raise TokenOrderError(
            "A token cannot expire before it is created; set `expires` to a later time, such as "
            "30d."
        )
    if token.role is Role.ADMIN and token.scopes:
        # An admin changes the fleet, and with it what is in which scope.
        raise TokenOrderError(
            "A token with the role admin cannot be limited to scopes; use the role operator."
        )
    _check_host(token)


def _check_host(token: Token) -> None:
    if token.role is not Role.RELAY:
        if token.host is not None:
            raise TokenOrderError(
                "Only a token with the role relay can be limited to a host; omit the host."
            )
        return
    if token.host is None:
        raise TokenOrderError("A token with the role relay needs the name of its host.")
    check_name(token.host, "host")
    if token.scopes:
        raise TokenOrderError(
            "A token with the role relay is limited to its host; omit the scopes."
        )


def select_scope(topology: Topology, name: str) -> ScopeId | None:
    """Return the scope called *name* in any case, or None; for a scale set, with all its groups."""
    key = name_key(name)
    for scope in topology.scopes.values():
        if key == name_key(scope.scope_id):
            return scope.scope_id
        if key == name_key(scope.name):
            return ScopeId(f"{scope.kind}/{scope.name}")
    return None
