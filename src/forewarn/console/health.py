"""/health: the server, its replicas, and whether it begins anything."""

from typing import Final

from forewarn.console.visit import ActionRoute, ConsoleRoute, Done, Page, PageRoute, Visit
from forewarn.desk.discovery import list_sources
from forewarn.desk.server import pause_server, resume_server, server_status
from forewarn.domain.roles import Role


def show_health(visit: Visit) -> Page:
    """Show whether everything works, and what does not."""
    services = visit.caller.services
    status = server_status(visit.caller)
    return Page(
        title="Health",
        template="health.html",
        values={
            "status": status,
            "sources": list_sources(visit.caller),
            "leaders": [each.name for each in status.replicas if each.is_leader],
            "clock": services.clock.kind,
            "jumps": tuple(services.jumps())[::-1],
            "watchers": services.ledger_watch.watchers,
        },
    )


def pause(visit: Visit) -> Done:
    """Begin nothing until resumed."""
    pause_server(visit.caller, visit.form.reason())
    return Done(message="The server is paused. It starts nothing new until it is resumed.")


def resume(visit: Visit) -> Done:
    """Continue, with all that fell due in the meantime."""
    resume_server(visit.caller)
    return Done(message="The server has resumed.")


ROUTES: Final[tuple[ConsoleRoute, ...]] = (
    PageRoute(path="/health", show=show_health),
    ActionRoute(path="/health/pause", act=pause, role=Role.ADMIN, name="pause"),
    ActionRoute(path="/health/resume", act=resume, role=Role.ADMIN, name="resume"),
)
