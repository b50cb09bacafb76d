"""/audit: who asked for what, and what was refused."""

from typing import Final

from forewarn.console.visit import ConsoleRoute

ROUTES: Final[tuple[ConsoleRoute, ...]] = ()
