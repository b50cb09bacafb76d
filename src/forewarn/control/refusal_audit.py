"""Which changes are refused, for the audit; what is done leaves its own line in operations."""

from collections.abc import Iterable
from http import HTTPStatus
from typing import Final

from fastapi.routing import APIRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from forewarn.control.authentication import API_PREFIX, is_protected
from forewarn.control.fastapi_parts import match_path
from forewarn.control.problems import Problem
from forewarn.desk.refusals import NOBODY, Refusals
from forewarn.ports.entries import AuditEntry
from forewarn.wording.statuses import name_of_status

_CHANGES_NOTHING: Final = frozenset({"GET", "HEAD", "OPTIONS"})


class RefusalAudit:
    """ASGI middleware that has every refused change written down before it is answered."""

    def __init__(self, app: ASGIApp, refusals: Refusals, routes: Iterable[APIRoute]) -> None:
        self._app = app
        self._refusals = refusals
        self._routes = tuple(routes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on; look at what is answered."""
        if scope["type"] != "http" or not is_protected(scope["path"]):
            await self._app(scope, receive, send)
            return
        await self._refusals.settle()
        state = scope.setdefault("state", {})

        def audit(problem: Problem) -> None:
            if refusal := self._count(scope, problem):
                self._refusals.note_and_wait(refusal)

        async def send_audited(message: Message) -> None:
            problem: Problem | None = state.pop("problem", None)
            if problem is not None and (refusal := self._count(scope, problem)):
                await self._refusals.note(refusal)
            await send(message)

        # For work on a thread that is refused after the answer has begun, or nobody waits for it.
        state["audit"] = audit
        try:
            await self._app(scope, receive, send_audited)
        finally:
            del state["audit"]  # a circle: as garbage, thousands of them would hold everybody up

    def _count(self, scope: Scope, problem: Problem) -> AuditEntry | None:
        """Count *problem*; return the line about it if it has to be written."""
        self._refusals.count(problem.kind)
        if problem.status == HTTPStatus.TOO_MANY_REQUESTS:
            self._refusals.is_excessive(scope["state"]["token_hash"], more=True)
        if scope["method"] in _CHANGES_NOTHING or problem.status >= 500:
            return None
        action, subject = self._find(scope)
        return self._refusals.entry(
            scope["client"][0] if scope["client"] else "",
            f"{name_of_status(problem.status)}: {problem.detail}",
            who=scope["state"].get("who", NOBODY),
            action=action,
            subject=subject,
            is_valid="principal" in scope["state"],
        )

    def _find(self, scope: Scope) -> tuple[str, str]:
        """Return the name of the route, which a refused token never reaches, and its subject."""
        path = scope["path"].removeprefix(API_PREFIX)
        for route in self._routes:
            parts = match_path(route, path)
            if parts is not None and scope["method"] in (route.methods or ()):
                return route.name, parts.get("event_id") or next(iter(parts.values()), NOBODY)
        return NOBODY, scope["path"]
