"""Requests that come again: with an Idempotency-Key they are done once, and answered twice.

What was answered is kept in the transaction that did it. So whoever was not answered, because the
connection or the server went away, may ask again without knowing whether it was done.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from forewarn.domain.errors import InvalidError
from forewarn.operations.context import Context
from forewarn.ports.entries import KeptAnswer
from forewarn.ports.store import Transaction

KEPT_FOR: Final = timedelta(hours=24)
"""For how long an answer is kept, in real time."""


class IdempotencyKeyReusedError(InvalidError):
    """A key that came with another request before."""

    def __init__(self, key: str) -> None:
        super().__init__(
            f"The Idempotency-Key {key[:40]!r} was already used with a different request. Use a "
            "new key for each request, and repeat a key only with the same request."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestKey:
    """What a caller calls a request, and what tells it from other requests."""

    key: str
    fingerprint: str


def do_once(tx: Transaction, context: Context, request: RequestKey, do: Callable[[], str]) -> str:
    """Return what *do* answers, or what it answered when *request* came before."""
    kept = tx.kept_answer(context.who, request.key)
    if kept is not None and kept.answered_at >= answers_kept_since(context):
        if kept.fingerprint != request.fingerprint:
            raise IdempotencyKeyReusedError(request.key)
        return kept.body
    body = do()
    tx.put_answer(
        KeptAnswer(
            who=context.who,
            key=request.key,
            fingerprint=request.fingerprint,
            answered_at=context.at,
            body=body,
        )
    )
    return body


def answers_kept_since(context: Context) -> datetime:
    """Return the moment from which on answers are kept."""
    return context.at - KEPT_FOR
