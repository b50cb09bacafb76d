"""Every page and action of the console, by noun."""

from typing import Final

from forewarn.console import (
    audit,
    events,
    fleet,
    health,
    machines,
    maintenances,
    notifications,
    now,
    timeline,
    tokens,
    virtual_time,
)
from forewarn.console.visit import ConsoleRoute

ROUTES: Final[tuple[ConsoleRoute, ...]] = (
    *now.ROUTES,  # which is asked for most
    *audit.ROUTES,
    *events.ROUTES,
    *fleet.ROUTES,
    *health.ROUTES,
    *machines.ROUTES,
    *maintenances.ROUTES,
    *notifications.ROUTES,
    *timeline.ROUTES,
    *tokens.ROUTES,
    *virtual_time.ROUTES,
)
