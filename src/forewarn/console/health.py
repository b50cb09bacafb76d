"""/health: the server, its replicas, and whether it begins anything."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from forewarn.console.visit import ActionRoute, ConsoleRoute, Done, Page, PageRoute, Visit
from forewarn.desk.discovery import list_sources
from forewarn.desk.server import ServerStatusView, pause_server, resume_server, server_status
from forewarn.desk.services import Services
from forewarn.domain.roles import Role
from forewarn.domain.standing import NEEDS_OPERATOR
from forewarn.domain.task import SILENT_AFTER

_FAR_BEHIND: Final = 5_000
"""From how many milliseconds on a replica that is behind is in trouble."""
_SILENT: Final = round(SILENT_AFTER.total_seconds())


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """What of a server has to work, at one moment."""

    is_ready: bool
    is_writable: bool
    is_following: bool
    failing: tuple[str, ...]


def show_health(visit: Visit) -> Page:
    """Show whether everything works, and what does not."""
    services = visit.caller.services
    status, condition = server_status(visit.caller), _look(services)
    sources = list_sources(visit.caller)
    return Page(
        title="Health",
        template="health.html",
        values={
            "status": status,
            "condition": condition,
            "problems": (
                *find_problems(status, condition),
                *(f"The fleet does not follow {s.name}. {s.problem}" for s in sources if s.problem),
            ),
            "sources": sources,
            "leaders": [each.name for each in status.replicas if each.is_leader],
            "clock": services.clock.kind,
            "jumps": tuple(services.jumps())[::-1],
            "watchers": services.ledger_watch.watchers,
        },
    )


def find_problems(status: ServerStatusView, condition: Condition) -> Iterator[str]:
    """Yield a sentence for each thing that does not work, the worst first."""
    if not condition.is_ready:
        yield "This server does not answer polls from virtual machines."
    if not condition.is_writable:
        yield (
            "The server cannot write to the database. It answers polls from memory and refuses "
            "changes."
        )
    if not any(each.is_leader and each.is_present for each in status.replicas):
        yield "No replica is the leader, so no event is announced or started until one is."
    if not condition.is_following:
        yield "This replica does not receive changes from other replicas."
    for name in condition.failing:
        yield f"The loop {name} has failed and is about to be restarted. See the server's log."
    if status.executor_problem:
        yield f"The executor file cannot be used: {status.executor_problem}"
    yield from _replica_problems(status)
    for each in status.maintenances:
        if each.status in NEEDS_OPERATOR:
            yield f"Maintenance {each.maintenance_id} is {each.status_text}."
    yield from (each.sentence for each in status.findings)


def pause(visit: Visit) -> Done:
    """Begin nothing until resumed."""
    pause_server(visit.caller, visit.form.reason())
    return Done(message="The server is paused. It starts nothing new until it is resumed.")


def resume(visit: Visit) -> Done:
    """Continue, with all that fell due in the meantime."""
    resume_server(visit.caller)
    return Done(message="The server has resumed.")


def _look(services: Services) -> Condition:
    return Condition(
        is_ready=services.is_ready(),
        is_writable=services.store.is_writable(),
        is_following=services.replicas.is_following(),
        failing=services.failing(),
    )


def _replica_problems(status: ServerStatusView) -> Iterator[str]:
    present = [each for each in status.replicas if each.is_present]
    for each in status.replicas:
        if not each.is_present:
            yield f"Replica {each.name} has not reported for more than {_SILENT} seconds."
        elif each.lag_in_milliseconds > _FAR_BEHIND:
            seconds = each.lag_in_milliseconds // 1000
            yield f"Replica {each.name} is {seconds} s behind."
    if len({each.version for each in present}) > 1:
        yield "The replicas run different versions."
    names = sorted({name for each in present for name in each.settings})
    for name in names:
        if len({each.settings.get(name) for each in present}) > 1:
            yield f"The replicas have different values of the setting {name}."


ROUTES: Final[tuple[ConsoleRoute, ...]] = (
    PageRoute(path="/health", show=show_health),
    ActionRoute(path="/health/pause", act=pause, role=Role.ADMIN, name="pause"),
    ActionRoute(path="/health/resume", act=resume, role=Role.ADMIN, name="resume"),
)
