"""Browsers of operators: signed in with a token or a link, and as good as that token since."""

from collections import Counter
from dataclasses import replace
from datetime import datetime
from threading import Lock
from typing import Final

from forewarn.desk.services import BusyError, Services
from forewarn.domain.access import (
    Principal,
    SignedInAsAnotherError,
    SignInLinkError,
    SignInTokenError,
    TokenExpiredError,
    TokenRevokedError,
)
from forewarn.domain.roles import Role
from forewarn.operations.access import hash_secret, new_secret
from forewarn.operations.context import Context
from forewarn.operations.sessions import (
    begin_session,
    create_link,
    end_session,
    find_link,
    find_session,
    note_session_use,
    redeem_link,
    session_needs_noting,
)
from forewarn.ports.entries import Actor
from forewarn.protocol.errors import ForewarnError

BEGINNINGS_PER_MINUTE: Final = 60
"""How many sessions and links of one token begin in a minute; each leaves a line in the audit."""


class SignInsBusyError(BusyError):
    """A token with which too many browsers are signed in."""

    def __init__(self) -> None:
        ForewarnError.__init__(self, "Too many sign-ins with this token. Try again in a minute.")


class Sessions:
    """Signs browsers in and out, and tells who is signed in; on any thread.

    A caller comes from the address *where*.
    """

    def __init__(self, services: Services) -> None:
        self._services = services
        self._store = services.store
        self._counting = Lock()
        self._minute: datetime | None = None
        self._begun: Counter[str] = Counter()

    def sign_in(self, secret: str, where: str) -> str:
        """Return the secret of a new session for whoever has the token *secret*.

        Refused with SignInTokenError if nobody has, and with the reason if it has ended or is a
        relay's.
        """
        principal = self._services.authenticate(secret)
        if principal is None:
            raise SignInTokenError
        principal.require(Role.VIEWER)
        own, name, token_hash = new_secret(), principal.name, hash_secret(secret)
        self._count(token_hash)
        self._store.write(lambda tx: begin_session(tx, self._context(name, where), token_hash, own))
        return own

    def redeem(self, code: str, where: str, *, held: str = "") -> str:
        """Return the secret of a new session in place of the link that has *code*.

        Refused with SignInLinkError if it signs nobody in, and with the reason if its token ended
        or if the session that the browser has, *held*, is somebody else's.
        """
        at = self._now()
        link = self._store.read(lambda reading: find_link(reading, code, at))
        if self._services.recognise(link.token_hash) is None:
            raise SignInLinkError
        known = self.find(held, is_use=False) if held else None
        if known is not None and known.name != link.name:
            raise SignedInAsAnotherError(known.name, link.name)
        own = new_secret()
        self._store.write(lambda tx: redeem_link(tx, self._context(link.name, where), code, own))
        return own

    def find(self, session_secret: str, *, is_use: bool) -> Principal | None:
        """Return who is signed in with *session_secret*, and is active there if it *is_use*.

        Nobody is if it was idle for too long, or if its token has ended.
        """
        at = self._now()
        session = self._store.read(lambda reading: find_session(reading, session_secret, at))
        if session is None:
            return None
        try:
            principal = self._services.recognise(session.token_hash)
        except (TokenExpiredError, TokenRevokedError):
            return None
        if is_use and principal is not None and session_needs_noting(session, at):
            # Nobody waits for it; what is lost is noted a minute later.
            self._store.submit(lambda tx: note_session_use(tx, session.session_hash, at))
        return principal

    def end(self, session_secret: str, where: str) -> None:
        """Sign out; nothing happens to whoever is signed out already."""
        at = self._now()
        session = self._store.read(lambda reading: find_session(reading, session_secret, at))
        if session is not None:
            context = self._context(session.name, where)
            self._store.write(lambda tx: end_session(tx, context, session_secret))

    def make_link(self, principal: Principal, token_hash: str, where: str) -> tuple[str, datetime]:
        """Return the code of a link that signs in one browser of *principal*, and its expiry."""
        code, name = new_secret(), principal.name
        self._count(token_hash)
        link = self._store.write(
            lambda tx: create_link(tx, self._context(name, where), token_hash, code)
        )
        return code, link.ends_at

    def _count(self, token_hash: str) -> None:
        minute = self._now().replace(second=0, microsecond=0)
        with self._counting:
            if minute != self._minute:
                self._minute, self._begun = minute, Counter()
            if self._begun[token_hash] >= BEGINNINGS_PER_MINUTE:
                raise SignInsBusyError
            self._begun[token_hash] += 1

    def _context(self, name: str, where: str) -> Context:
        return replace(self._services.context(name), where=where, actor=Actor.OPERATOR)

    def _now(self) -> datetime:
        return self._services.context("").at
