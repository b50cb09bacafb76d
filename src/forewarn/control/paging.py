"""Long lists in pages: a cursor names the last thing seen, so that what comes moves nothing.

A page is encoded here, on the thread of its request and thing by thing, so that polls do not wait.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Any, Final, TypeVar

from fastapi import Depends, Query, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel
from starlette.responses import Response

T = TypeVar("T")

PAGE: Final = 1000
"""How many things a page has, unless another number is asked for."""
LINKED: Final[dict[int | str, dict[str, Any]]] = {
    200: {
        "headers": {
            "Link": {
                "description": 'The next page, rel="next" (RFC 8288); missing on the last.',
                "schema": {"type": "string"},
            }
        }
    }
}
"""What OpenAPI tells of a list in pages."""


class Paging:
    """Which page of a list is wanted, and where the next one is."""

    def __init__(
        self,
        request: Request,
        limit: Annotated[int, Query(ge=1, le=10_000, description="The most.")] = PAGE,
        after: Annotated[
            str | None,
            Query(max_length=256, description="The cursor of the Link header of the page before."),
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
            problem = "is not a cursor of this list; use the one in its Link header"
            raise RequestValidationError([{"loc": ("query", "after"), "msg": problem}])
        return int(self.after)

    def newest(
        self,
        name: str,
        found: Sequence[T],
        view: Callable[[T], BaseModel],
        cursor: Callable[[T], object],
    ) -> Response:
        """Answer with the last of *found*, if there is one more than wanted; it goes back in time.

        *found* is oldest first.
        """
        shown = found[-self.limit :]
        more = cursor(shown[0]) if len(found) > self.limit else None
        return self._answer(name, map(view, shown), more)

    def first(
        self,
        name: str,
        found: Sequence[T],
        view: Callable[[T], BaseModel],
        cursor: Callable[[T], object],
    ) -> Response:
        """Answer with the first of *found*, and say where those after it are."""
        shown = found[: self.limit]
        more = cursor(shown[-1]) if len(found) > self.limit else None
        return self._answer(name, map(view, shown), more)

    def _answer(self, name: str, views: Iterable[BaseModel], more: object) -> Response:
        body = ",".join(view.model_dump_json() for view in views)
        headers = {}
        if more is not None:
            following = self._url.include_query_params(after=str(more))
            headers["Link"] = f'<{following.path}?{following.query}>; rel="next"'
        return Response(f'{{"{name}":[{body}]}}', headers=headers, media_type="application/json")


Paged = Annotated[Paging, Depends()]
"""How a route asks for it."""
