"""/events/{event_id}: the life of one event, what it waits for, and what can be done about it."""

from typing import Final

from forewarn.console.visit import ConsoleRoute

ROUTES: Final[tuple[ConsoleRoute, ...]] = ()
