"""Arguments that name things, and the names a command line is completed with.

The server is asked for them; if it is not there, there are none.

Shells insert names unquoted, and zsh evaluates them with what is said about them. Who answers may
not be our server, so nothing gets there that a shell could take for more than a word.
Whatever goes wrong, nothing is said: somebody is in the middle of a line.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Annotated, Any, Final, TypeAlias

import typer

from forewarn.cli.errors import CommandError
from forewarn.cli.options import REQUIRED, Flag, argument, option
from forewarn.cli.output import Row
from forewarn.cli.session import Session, open_session
from forewarn.domain.names import is_name
from forewarn.domain.phrases import count_of
from forewarn.protocol.errors import ForewarnError

Completions: TypeAlias = Iterable[tuple[str, str]]
"""Names, each with a few words about it."""

_PATIENCE: Final = 1.0
_MOST: Final = 1000
_NOT_PLAIN: Final = re.compile(r"[^A-Za-z0-9_ ,.:/-]")


def _completer(
    ask: Callable[[Session], Completions],
) -> Callable[[typer.Context, str], list[tuple[str, str]]]:
    """Return what completes a beginning to those of the names that *ask* finds."""

    def complete(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
        beginning = incomplete.lower()
        try:
            session = open_session(ctx.params, patience=_PATIENCE)
            return [
                (name, _NOT_PLAIN.sub("?", about))
                for name, about in ask(session)
                if all(map(is_name, name.split("/"))) and name.lower().startswith(beginning)
            ]
        except (CommandError, ForewarnError):
            return []

    return complete


def _listed(
    noun: str, key: str, describe: Callable[[Row], str], **query: Any
) -> Callable[[Session], Completions]:
    """Return what finds the *key* of everything in a list, with a few words about each."""
    return lambda session: ((row[key], describe(row)) for row in _several(session, noun, **query))


def _scopes(session: Session) -> Iterator[tuple[str, str]]:
    machines = Counter(
        (vm["scope_name"], vm["scope_kind"]) for vm in _several(session, "virtual-machines")
    )
    for (name, kind), number in machines.items():
        yield name, f"{kind}, {number} virtual machines"


def _replicas(session: Session) -> Iterator[tuple[str, str]]:
    for replica in session.get("server")["replicas"]:
        yield replica["name"], f"seen {replica['seen_at']}"


def _owners(session: Session) -> Iterator[tuple[str, str]]:
    owners = Counter(task["owner"] for task in session.get("tasks")["tasks"])
    for name, number in owners.items():
        yield name, count_of(number, "task")


def _settleable(session: Session) -> Iterator[tuple[str, str]]:
    for task in session.get("tasks")["tasks"]:
        if task["can_settle"]:
            yield task["task_id"], f"{task['runner']} of {task['owner']}"


def _several(session: Session, noun: str, **query: Any) -> Iterable[Row]:
    answer: Row = session.get(noun, limit=_MOST, **query)
    rows: Iterable[Row] = answer[noun.replace("-", "_")]
    return rows


def _describe_event(event: Row) -> str:
    of = f"{event['event_type']} of {', '.join(event['resources'])}"
    return f"{event['event_status']} {of}"


vm_names: Final = _completer(_listed("virtual-machines", "name", lambda vm: vm["scope_id"]))
host_names: Final = _completer(
    _listed("hosts", "name", lambda host: f"{len(host['virtual_machines'])} virtual machines")
)
event_ids: Final = _completer(
    _listed("events", "event_id", _describe_event, status=["Scheduled", "Started"])
)
maintenance_ids: Final = _completer(
    _listed("maintenances", "maintenance_id", lambda it: f"{it['status']} {it['event_type']}")
)
replica_names: Final = _completer(_replicas)
owner_names: Final = _completer(_owners)
settleable_tasks: Final = _completer(_settleable)
_schedule_names: Final = _completer(
    _listed("schedules", "name", lambda it: f"{it['status']}, every {it['every']}")
)

VmArgument = Annotated[
    str, argument("NAME", "Name of the virtual machine.", autocompletion=vm_names)
]
HostArgument = Annotated[str, argument("HOST", "Name of the host.", autocompletion=host_names)]
ScopeArgument = Annotated[
    str,
    argument("SCOPE", "Name of a set or standalone machine.", autocompletion=_completer(_scopes)),
]
ScheduleArgument = Annotated[
    str, argument("NAME", "Name of the schedule.", autocompletion=_schedule_names)
]
EventArgument = Annotated[
    str, argument("ID", "EventId, or its first characters.", autocompletion=event_ids)
]
MaintenanceArgument = Annotated[
    str,
    argument("ID", "Id, or its first characters.", autocompletion=maintenance_ids),
]
AFFECTED: Final = Flag(
    kind=list[str],
    option=option("VM", "Affected virtual machine; repeatable.", autocompletion=vm_names),
    key="resources",
    default=REQUIRED,
)
