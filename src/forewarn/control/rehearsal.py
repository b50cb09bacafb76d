"""dry_run: a change is made, answered, and undone before anybody has seen it.

It is the same transaction, so that what is answered is what would have come of it. Nothing is
written of it. That somebody was refused is: without it, dry runs would be a way to try unseen.
"""

from collections.abc import Callable
from http import HTTPStatus
from typing import Annotated, Any, Final, TypeVar

from fastapi import Depends, Query, Request, Response
from pydantic import BaseModel

from forewarn.ports.store import Store, Transaction

T = TypeVar("T")


def rehearse(store: Store, work: Callable[[Transaction], T]) -> T:
    """Return what *work* returns in a transaction that is rolled back."""
    results: list[T] = []

    def work_in_vain(tx: Transaction) -> None:
        results.append(work(tx))
        raise _UndoneError

    try:
        store.write(work_in_vain)
    except _UndoneError:
        return results[0]
    raise AssertionError("the store has swallowed an error of the work")


def would_answer(view: type[BaseModel]) -> dict[int | str, dict[str, Any]]:
    """Return how OpenAPI describes a dry run of what else creates something."""
    return {HTTPStatus.OK: {"model": view, "description": "What would be created, with dry_run."}}


class _UndoneError(Exception):
    """Nobody outside of this module ever sees it."""


def _note_dry_run(
    request: Request,
    response: Response,
    *,
    dry_run: Annotated[
        bool, Query(description="Only answer what would come of it; nothing is written.")
    ] = False,
) -> None:
    request.state.is_dry_run = dry_run
    if dry_run:
        response.status_code = HTTPStatus.OK  # nothing is created


CAN_BE_DRY: Final = (Depends(_note_dry_run),)
"""The dependencies of a route that can be rehearsed."""
