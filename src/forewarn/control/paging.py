"""Long lists in pages: a cursor names the last thing seen, so that what comes moves nothing.

A page is encoded here, on the thread of its request and thing by thing, so that polls do not wait.
"""

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Annotated, Final, TypeVar

from fastapi import Depends, Query, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel
from starlette.responses import Response

T = TypeVar("T")

PAGE: Final = 1000
"""How many things a page has, unless another number is asked for."""


class Paging:
    """Which page of a list is wanted, and where the next one is."""

    def __init__(
        self,
        request: Request,
        limit: Annotated[
            int, Query(ge=1, le=10_000, description="Maximum number of items.")
        ] = PAGE,
        after: Annotated[
            str | None,
            Query(max_length=256, description="Cursor from the Link header of the previous page."),
        ] = None,
    ) -> None:
        self.limit = limit
        self.after = after
        self._url = request.url

    def place(self) -> int | None:
        """Return the cursor of a list whose things are numbered."""
        if self.after is None:
            return None
        if not (self.after.isascii() and self.after.isdecimal() and len(self.after) < 19):
            problem = "is not a valid cursor of this list; use the one in its Link header"
            raise RequestValidationError([{"loc": ("query", "after"), "msg": problem}])
        return int(self.after)

    def answer(
        self,
        name: str,
        found: Sequence[T],
        view: Callable[[T], BaseModel],
        cursor: str,
        *,
        goes_back: bool = False,
    ) -> Response:
        """Answer with the first of *found*, and say where those after it are, by their *cursor*.

        A list that *goes_back* in time is oldest first: the last of it are shown, and those before
        them come next.
        """
        shown = found[-self.limit :] if goes_back else found[: self.limit]
        body = ",".join(view(each).model_dump_json() for each in shown)
        headers = {}
        if len(found) > self.limit:
            last = attrgetter(cursor)(shown[0 if goes_back else -1])
            following = self._url.include_query_params(after=str(last))
            headers["Link"] = f'<{following.path}?{following.query}>; rel="next"'
        return Response(f'{{"{name}":[{body}]}}', headers=headers, media_type="application/json")


Paged = Annotated[Paging, Depends()]
"""How a route asks for it."""
