"""/: what is happening, what comes next, and what it waits for."""

from typing import Final

from forewarn.console.visit import ConsoleRoute, Page, PageRoute, Visit


def show_now(visit: Visit) -> Page:
    """Show what is happening now."""
    return Page(
        title="Now",
        template="now.html",
        values={"events": visit.read(lambda reading: reading.events_in_flight())},
    )


ROUTES: Final[tuple[ConsoleRoute, ...]] = (PageRoute(path="/", show=show_now),)
