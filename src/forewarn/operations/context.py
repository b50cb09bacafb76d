"""Who asks, when, and by which rules."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from forewarn.domain.errors import ConflictError, says
from forewarn.domain.host_work import HostWorkRule
from forewarn.domain.limits import DOCUMENT_RETENTION, USER_INITIATED_LIMIT
from forewarn.domain.notice import NoticeMode
from forewarn.domain.notification import Target
from forewarn.domain.task import OWNER_GRACE
from forewarn.ports.entries import Actor
from forewarn.protocol.vocabulary import EventId


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What the operator has set for the whole server.

    Impact that *is_simulated* takes as long as usual; how long any other takes, nobody knows.
    *gates* are the names of those there are. With *is_shared*, other replicas are on the same
    database. *node* is the state directory of this server, and *owner_grace* how long the owner of
    a task may be away.
    """

    notice: NoticeMode = NoticeMode.ALWAYS
    speed: float = 1
    user_initiated_limit: int = USER_INITIATED_LIMIT
    overdue_after: timedelta | None = None
    is_simulated: bool = False
    targets: tuple[Target, ...] = ()
    host_works: tuple[HostWorkRule, ...] = ()
    gates: tuple[str, ...] = ()
    document_retention: timedelta = DOCUMENT_RETENTION
    is_shared: bool = False
    node: str = ""
    owner_grace: timedelta = OWNER_GRACE


@says("{what} need a server with a SQLite database; this server uses PostgreSQL.")
class SharedDatabaseError(ConflictError):
    """Something that is in one process only, where others are on the same database."""

    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """Who asks and when: *now* in maintenance time, *at* in real time.

    *where* is the address they ask from, if they came over a network. An *actor* is unknown until
    somebody has found out.
    """

    who: str
    now: datetime
    at: datetime
    new_id: Callable[[], EventId]
    rules: Rules = field(default_factory=Rules)
    where: str = ""
    actor: Actor = Actor.UNKNOWN
