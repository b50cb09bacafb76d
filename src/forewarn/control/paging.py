"""Long lists in pages: a cursor names the last thing seen, so that what comes moves nothing."""

from typing import Annotated

from fastapi import Depends, Query, Request, Response


class Paging:
    """Which page of a list is wanted, and where the next one is."""

    def __init__(
        self,
        request: Request,
        response: Response,
        limit: Annotated[int | None, Query(ge=1, le=10_000, description="The most.")] = None,
        after: Annotated[
            str | None,
            Query(max_length=256, description="The cursor of the Link header of the page before."),
        ] = None,
    ) -> None:
        self.limit = limit
        self.after = after
        self._url = request.url
        self._headers = response.headers

    def link_next(self, cursor: str) -> None:
        """Say that there is more after *cursor* (RFC 8288)."""
        following = self._url.include_query_params(after=cursor)
        self._headers["Link"] = f'<{following.path}?{following.query}>; rel="next"'


Paged = Annotated[Paging, Depends()]
"""How a route asks for it."""
