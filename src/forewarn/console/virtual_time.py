"""/virtual-time: a clock to advance, scenarios to run, and faults to set."""

from typing import Final

from forewarn.console.visit import ConsoleRoute

ROUTES: Final[tuple[ConsoleRoute, ...]] = ()
