"""/fleet: every scope as a grid of update and fault domains, or every host."""

from typing import Final

from forewarn.console.visit import ConsoleRoute

ROUTES: Final[tuple[ConsoleRoute, ...]] = ()
