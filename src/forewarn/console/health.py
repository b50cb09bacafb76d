"""/health: the server, its replicas, and whether it begins anything."""

from typing import Final

from forewarn.console.visit import ConsoleRoute

ROUTES: Final[tuple[ConsoleRoute, ...]] = ()
