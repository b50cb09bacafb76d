"""Every page and action of the console, by noun."""

from typing import Final

from forewarn.console import now
from forewarn.console.visit import ConsoleRoute

ROUTES: Final[tuple[ConsoleRoute, ...]] = (*now.ROUTES,)
