"""Browsers that are signed in to the console: links that sign one in, and sessions until they end.

A session stands for the token that it was begun with. What it grants is looked up there each time,
so it ends with its token. Secrets are those of `operations.access`: only their hashes are kept.
"""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from forewarn.domain.access import (
    LINK_LIFE,
    LINKS_OF_A_TOKEN,
    SESSION_IDLE,
    ConsoleSession,
    SignInLinkError,
    SignInLinksError,
)
from forewarn.operations.access import hash_secret
from forewarn.operations.context import Context
from forewarn.operations.recording import record_audit
from forewarn.ports.store import Reading, Transaction

SESSION_USE_NOTED_AFTER: Final = timedelta(minutes=1)
"""How closely it is known when a session was last used."""


def create_link(tx: Transaction, context: Context, token_hash: str, secret: str) -> ConsoleSession:
    """Have *secret* sign in one browser, once, with the token of the caller.

    Refused if enough links of the token do already.
    """
    if tx.count_links(token_hash, since=context.at - LINK_LIFE) >= LINKS_OF_A_TOKEN:
        raise SignInLinksError(context.who, LINKS_OF_A_TOKEN)
    link = _make(context, token_hash, secret, is_link=True)
    tx.put_session(link)
    record_audit(tx, context, "console link", context.who)
    return link


def begin_session(
    tx: Transaction, context: Context, token_hash: str, secret: str
) -> ConsoleSession:
    """Have *secret* be the one of a browser that the caller has signed in with a token."""
    return _begin(tx, context, token_hash, secret, detail="with the token")


def redeem_link(tx: Transaction, context: Context, code: str, secret: str) -> ConsoleSession:
    """Sign in the browser that has *secret* in place of the link that has *code*."""
    # Looked at again inside the transaction: of two browsers that have it, one is first.
    link = find_link(tx, code, context.at)
    tx.remove_session(link.session_hash)
    return _begin(tx, context, link.token_hash, secret, detail="with a link")


def find_link(reading: Reading, code: str, at: datetime) -> ConsoleSession:
    """Return the link that has *code*, or refuse one that signs nobody in."""
    link = _find(reading, code, at)
    if link is None or not link.is_link:
        raise SignInLinkError
    return link


def find_session(reading: Reading, secret: str, at: datetime) -> ConsoleSession | None:
    """Return the session that has *secret*, unless there is none or it has ended."""
    session = _find(reading, secret, at)
    return None if session is None or session.is_link else session


def session_needs_noting(session: ConsoleSession, at: datetime) -> bool:
    """Tell whether it is worth a write that *session* was used."""
    return at - session.used_at >= SESSION_USE_NOTED_AFTER


def note_session_use(tx: Transaction, session_hash: str, at: datetime) -> None:
    """Write down that a session was used, unless it is over or that is known closely enough."""
    session = tx.session(session_hash)
    if session is not None and session.is_live(at) and session_needs_noting(session, at):
        tx.put_session(replace(session, used_at=at))


def end_session(tx: Transaction, context: Context, secret: str) -> None:
    """Sign out the browser that has *secret*, unless it is signed out already."""
    session = find_session(tx, secret, context.at)
    if session is not None:
        tx.remove_session(session.session_hash)
        record_audit(tx, context, "console sign out", session.name)


def sessions_kept_since(context: Context) -> datetime:
    """Return the moment after which every session and link that is live was used or made."""
    return context.at - SESSION_IDLE


def _begin(
    tx: Transaction, context: Context, token_hash: str, secret: str, *, detail: str
) -> ConsoleSession:
    session = _make(context, token_hash, secret, is_link=False)
    tx.put_session(session)
    record_audit(tx, context, "console sign in", context.who, detail=detail)
    return session


def _make(context: Context, token_hash: str, secret: str, *, is_link: bool) -> ConsoleSession:
    return ConsoleSession(
        session_hash=hash_secret(secret),
        token_hash=token_hash,
        name=context.who,
        is_link=is_link,
        created_at=context.at,
        used_at=context.at,
    )


def _find(reading: Reading, secret: str, at: datetime) -> ConsoleSession | None:
    # By its hash, which tells a guesser as little as it does of tokens.
    found = reading.session(hash_secret(secret))
    return found if found is not None and found.is_live(at) else None
