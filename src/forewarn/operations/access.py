"""Tokens: creating them, showing one, and taking them back.

A secret has 256 random bits, so nobody can guess it from its hash, and a slow hash would only make
every request slow. The hash is unsalted, so that the store finds a token by it.
"""

import hmac
import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Final

from forewarn.domain.access import (
    Token,
    TokenNameTakenError,
    UnknownTokenError,
    check_token,
    select_scope,
)
from forewarn.domain.names import HostName, ScopeId, name_key
from forewarn.domain.roles import Role
from forewarn.domain.topology import Topology
from forewarn.operations.context import Context
from forewarn.operations.recording import record_audit
from forewarn.operations.scopes import unknown_selection
from forewarn.ports.store import Reading, Transaction

SECRET_PREFIX: Final = "fw_"  # noqa: S105 - what secrets begin with, so that scanners find them
_SECRET: Final = re.compile(rf"{SECRET_PREFIX}[A-Za-z0-9_-]{{20,}}")
RENEW_ADMIN: Final = "token renew-admin"
USE_NOTED_AFTER: Final = timedelta(minutes=10)
"""How closely it is known when a token was last used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenOrder:
    """What a token is to be: who has it, what they may, where, and until when.

    The *host* of a relay need not be known yet.
    """

    name: str
    role: Role
    scopes: tuple[str, ...] = ()
    host: str | None = None
    expires_at: datetime | None = None


def new_secret() -> str:
    """Return 256 random bits that nobody has had."""
    return SECRET_PREFIX + secrets.token_urlsafe(32)


def hash_secret(secret: str) -> str:
    """Return what is kept of *secret*, or of whatever else somebody has typed in its place."""
    return sha256(secret.encode(errors="surrogatepass")).hexdigest()


def create_token(tx: Transaction, context: Context, order: TokenOrder, secret: str) -> Token:
    """Have *secret* grant what *order* says; only its hash is kept."""
    topology = tx.topology()
    token = Token(
        name=order.name,
        token_hash=hash_secret(secret),
        role=order.role,
        scopes=_select_all(topology, order.scopes),
        host=None if order.host is None else _spell_host(topology, order.host),
        created_at=context.at,
        expires_at=order.expires_at,
    )
    check_token(token)
    key = name_key(token.name)
    for known in tx.tokens():
        if name_key(known.name) == key and known.is_live(context.at):
            raise TokenNameTakenError(known.name)
    tx.put_token(token)
    said = (token.role.value, *token.scopes, *([token.host] if token.host else []))
    record_audit(tx, context, "token create", token.name, detail=", ".join(said))
    return token


def grant_admin(
    tx: Transaction, context: Context, name: str, secret: str, *, renewed_in: str = ""
) -> None:
    """Have *secret* grant everything, on all replicas of a shared database, and no other so.

    *renewed_in* is the file that an operator had replaced.
    """
    for token in tx.tokens():
        if token.name == name and token.revoked_at is None:
            tx.put_token(replace(token, revoked_at=context.at))
    token_hash = hash_secret(secret)
    tx.put_token(Token(name=name, token_hash=token_hash, role=Role.ADMIN, created_at=context.at))
    if renewed_in:
        record_audit(tx, context, RENEW_ADMIN, name, detail=renewed_in)
    else:
        record_audit(tx, context, "token create", name, detail=Role.ADMIN.value)


def revoke_token(tx: Transaction, context: Context, name: str) -> Token:
    """Take back the token called *name*; from now on it grants nothing."""
    key = name_key(name)
    for token in reversed(tx.tokens()):
        if name_key(token.name) == key and token.revoked_at is None:
            revoked = replace(token, revoked_at=context.at)
            tx.put_token(revoked)
            record_audit(tx, context, "token revoke", token.name)
            return revoked
    raise UnknownTokenError(name)


def find_token(reading: Reading, token_hash: str, at: datetime) -> Token | None:
    """Return the live token whose secret has this hash, or None, or refuse one that has ended."""
    # The index compares hashes byte by byte. That tells a guesser about the hash of the guess, from
    # which no better guess can be made; what decides compares all of it.
    token = reading.token(token_hash)
    if token is None or not hmac.compare_digest(token.token_hash, token_hash):
        return None
    token.check_live(at)
    return token


def is_hash_of(secret: str, given: str) -> bool:
    """Tell whether *given* is the hash of *secret*, in a time that says nothing about either."""
    return hmac.compare_digest(hash_secret(secret), given)


def is_secret_of(token: Token, given: str) -> bool:
    """Tell whether *given* is the secret of *token*, in a time that says nothing about either."""
    return hmac.compare_digest(token.token_hash, hash_secret(given))


def needs_noting(token: Token, at: datetime) -> bool:
    """Tell whether it is worth a write that *token* was used."""
    return token.last_used_at is None or at - token.last_used_at >= USE_NOTED_AFTER


def note_use(tx: Transaction, token_hash: str, at: datetime) -> None:
    """Write down that a token was used, unless that is known closely enough already."""
    token = tx.token(token_hash)
    if token is not None and needs_noting(token, at):
        tx.put_token(replace(token, last_used_at=at))


def redact(text: str) -> str:
    """Return *text* without any secret that somebody has put where it does not belong."""
    return _SECRET.sub(f"{SECRET_PREFIX}…", text)


def _spell_host(topology: Topology, name: str) -> HostName:
    """Return the host *name* as the fleet spells it, if the fleet knows it."""
    key = name_key(name)
    return next((host for host in topology.hosts if name_key(host) == key), HostName(name))


def _select_all(topology: Topology, names: Iterable[str]) -> tuple[ScopeId, ...]:
    chosen: dict[ScopeId, None] = {}
    for name in names:
        scope_id = select_scope(topology, name)
        if scope_id is None:
            raise unknown_selection(topology, name)
        chosen[scope_id] = None
    return tuple(chosen)
