"""Who may do what, from which browsers, who has done what, and what they were answered."""

from datetime import datetime
from typing import Protocol

from forewarn.domain.access import ConsoleSession, Token
from forewarn.ports.entries import AuditEntry, KeptAnswer


class AccessReading(Protocol):
    """A look at tokens, sessions, the audit and answers."""

    def token(self, token_hash: str) -> Token | None: ...

    def tokens(self) -> tuple[Token, ...]: ...

    def session(self, session_hash: str) -> ConsoleSession | None: ...

    def audit(
        self,
        *,
        who: str | None = None,
        action: str | None = None,
        outcome: str | None = None,
        since: datetime | None = None,
        older_than: int | None = None,
        limit: int = 1000,
    ) -> tuple[AuditEntry, ...]:
        """Return the newest *limit* entries of these, oldest first; *older_than* is a sequence."""

    def kept_answer(self, who: str, key: str) -> KeptAnswer | None: ...


class AccessWriting(AccessReading, Protocol):
    """A look at tokens, sessions, the audit and answers that may also change them."""

    def put_token(self, token: Token) -> None: ...

    def put_session(self, session: ConsoleSession) -> None: ...

    def remove_session(self, session_hash: str) -> None: ...

    def prune_sessions(self, *, before: datetime) -> int:
        """Forget those that were last used before then, and tell how many those were."""

    def append_audit(self, entry: AuditEntry) -> None: ...

    def put_answer(self, answer: KeptAnswer) -> None:
        """Keep *answer*, in place of what was kept for the same caller and key."""

    def prune_answers(self, *, before: datetime) -> int:
        """Forget what was answered before then, and tell how many answers those were."""
