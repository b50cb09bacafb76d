"""Somebody with a token, and what they do with it: one transaction per request.

Everything an operator sees or changes goes through here, and with it through the limit to scopes.
"""

from collections.abc import AsyncGenerator, Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from hashlib import sha256
from typing import TypeAlias, TypeVar

from pydantic import BaseModel

from forewarn.desk.ledger_watch import Growth
from forewarn.desk.scope_limit import limit_lines, limit_reading, limit_targets, limit_transaction
from forewarn.desk.services import Services
from forewarn.domain.access import Principal
from forewarn.domain.errors import says
from forewarn.domain.notification import Target
from forewarn.domain.roles import Role
from forewarn.operations.access import (
    find_token,
    hash_secret,
    is_hash_of,
    needs_noting,
    note_use,
)
from forewarn.operations.context import Context
from forewarn.operations.repeats import RequestKey, do_once
from forewarn.ports.entries import Actor
from forewarn.ports.store import Reading, Store, Transaction
from forewarn.protocol.errors import ForewarnError

T = TypeVar("T")
V = TypeVar("V", bound=BaseModel)
Shown: TypeAlias = BaseModel | bytes
"""What is answered, encoded or not."""


@says("The object changed after you read it; read it again, then retry.")
class PreconditionFailedError(ForewarnError):
    """What was to be changed is not any more as the caller has seen it."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Authenticator:
    """Tells whose token it is: the one of *admin*, or one that *store* has.

    Without an *admin_secret* the store has that one, too. It is nobody's if it is unknown; one that
    has ended is refused with the reason.
    """

    store: Store
    now: Callable[[], datetime]
    admin: str
    admin_secret: Callable[[], str] | None

    def authenticate(self, secret: str) -> Principal | None:
        """Return who has the token *secret*."""
        return self.recognise(hash_secret(secret))

    def recognise(self, token_hash: str) -> Principal | None:
        """Return who has the token whose secret has this hash, and has used it now."""
        if self.admin_secret is not None and is_hash_of(self.admin_secret(), token_hash):
            return Principal(name=self.admin, role=Role.ADMIN)
        at = self.now()
        token = self.store.read(lambda reading: find_token(reading, token_hash, at))
        if token is None:
            return None
        if needs_noting(token, at):
            # Nobody waits for it, and nobody minds if it is lost.
            self.store.submit(lambda tx: note_use(tx, token_hash, at))
        return token.principal


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who asks, from where, and of which server.

    With *if_match*, nothing is changed that does not have one of these tags any more. In a dry run
    a change is made, answered, and undone before anybody has seen it.
    """

    principal: Principal
    where: str
    services: Services
    if_match: str | None = None
    if_none_match: str | None = None
    is_dry_run: bool = False

    def context(self) -> Context:
        """Return who asks, when, and by which rules."""
        context = self.services.context(self.principal.name)
        return replace(context, where=self.where, actor=Actor.OPERATOR)

    def write(
        self,
        operation: Callable[[Transaction, Context], T],
        *,
        current: Callable[[Reading], Shown] | None = None,
    ) -> T:
        """Do *operation* in a transaction, and in virtual time all that it makes due.

        It is refused if *current*, which is what it changes, is not what the caller asks it to be.
        """

        def work(tx: Transaction) -> T:
            limited = limit_transaction(tx, self.principal)
            self._require_match(limited, current)
            # The time is taken inside the transaction, so that it never runs backwards between two.
            return operation(limited, self.context())

        if self.is_dry_run:
            return _rehearse(self.services.store, work)
        result = self.services.store.write(work)
        self.services.settle()
        return result

    def write_once(
        self,
        key: RequestKey | None,
        view: type[V],
        operation: Callable[[Transaction, Context], V],
        *,
        current: Callable[[Reading], Shown] | None = None,
    ) -> V:
        """Do as `write` does; but what was done under *key* before is only answered again."""
        if key is None:
            return self.write(operation, current=current)

        def work(tx: Transaction, context: Context) -> str:
            def do() -> str:
                self._require_match(tx, current)
                return operation(tx, context).model_dump_json()

            return do_once(tx, context, key, do)

        return view.model_validate_json(self.write(work))

    def change(
        self,
        key: RequestKey | None,
        view: type[V],
        look: Callable[[Reading], V],
        verb: Callable[[Transaction, Context], object],
    ) -> V:
        """Do *verb*, as `write_once` does, to what *look* sees, and return what it sees then."""

        def operation(tx: Transaction, context: Context) -> V:
            verb(tx, context)
            return look(tx)

        return self.write_once(key, view, operation, current=look)

    def read(
        self, look: Callable[[Reading], T], *, current: Callable[[Reading], Shown] | None = None
    ) -> T:
        """Return what *look* sees in one consistent snapshot; with *current* as in `write`."""

        def see(reading: Reading) -> T:
            limited = limit_reading(reading, self.principal)
            self._require_match(limited, current)
            return look(limited)

        return self.services.store.read(see)

    async def watch(self, after: int) -> AsyncGenerator[Growth]:
        """Yield what follows the line *after* of the ledger, as it grows, and heart-beats."""
        async for place, lines in self.services.ledger_watch.watch(after):
            yield place, limit_lines(lines, self.principal)

    def targets(self) -> tuple[Target, ...]:
        """Return who is told what, as far as it is about what the caller may see."""
        return limit_targets(self.context().rules.targets, self.principal)

    def _require_match(self, reading: Reading, current: Callable[[Reading], Shown] | None) -> None:
        if current is None or self.if_match is None or self.if_match.strip() == "*":
            return
        if tag_of(encode(current(reading))) not in split_tags(self.if_match):
            raise PreconditionFailedError


def encode(shown: Shown) -> bytes:
    """Return *shown* as it is sent."""
    return shown if isinstance(shown, bytes) else shown.model_dump_json().encode()


def tag_of(body: bytes) -> str:
    """Return a strong tag, which is the same for as long as *body* is."""
    return f'"{sha256(body).hexdigest()[:32]}"'


def split_tags(header: str | None) -> Iterator[str]:
    """Yield the tags that are listed in *header*."""
    return (tag.strip() for tag in (header or "").split(","))


def _rehearse(store: Store, work: Callable[[Transaction], T]) -> T:
    """Return what *work* returns in a transaction that is rolled back.

    It is the same transaction, so that what is answered is what would have come of it.
    """
    results: list[T] = []

    def work_in_vain(tx: Transaction) -> None:
        results.append(work(tx))
        raise _UndoneError

    try:
        store.write(work_in_vain)
    except _UndoneError:
        return results[0]
    raise AssertionError("the store has swallowed an error of the work")


class _UndoneError(Exception):
    """Nobody outside of this module ever sees it."""
