"""/virtual-machines/{name}: what a machine reads, its history, and its time machine."""

from typing import Final

from forewarn.console.visit import ConsoleRoute

ROUTES: Final[tuple[ConsoleRoute, ...]] = ()
