"""/notice: notice promised against notice given, and how long approvals took."""

from typing import Final

from forewarn.console.visit import ConsoleRoute

ROUTES: Final[tuple[ConsoleRoute, ...]] = ()
