"""dry_run: a change is made, answered, and undone before anybody has seen it.

Nothing is written of it. That somebody was refused is: without it, dry runs would be a way to try
unseen.
"""

from http import HTTPStatus
from typing import Annotated, Any, Final

from fastapi import Depends, Query, Request, Response
from pydantic import BaseModel


def would_answer(view: type[BaseModel]) -> dict[int | str, dict[str, Any]]:
    """Return how OpenAPI describes a dry run of what else creates something."""
    return {HTTPStatus.OK: {"model": view, "description": "What would be created, with dry_run."}}


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
