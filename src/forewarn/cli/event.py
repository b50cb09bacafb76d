"""`forewarn event`: announcing events, following them, and changing their course."""

import json
from collections.abc import Iterable
from typing import Annotated, Final, TypeVar

import typer

from forewarn.cli.completing import event_ids, vm_names
from forewarn.cli.errors import CommandError, ExitCode, confirm
from forewarn.cli.following import follow
from forewarn.cli.output import Columns, Output, Row, print_fields, print_table, time_of
from forewarn.cli.session import Session, command, noun
from forewarn.cli.waiting import Timeout, Wait, require_success, wait_for_events
from forewarn.protocol.vocabulary import EventStatus, EventType

T = TypeVar("T")

app = noun("event", "Announce events, follow them, and change their course.")

EventIdArgument = Annotated[
    str, typer.Argument(metavar="ID", help="The EventId.", autocompletion=event_ids)
]
NotBefore = Annotated[
    str | None,
    typer.Option(metavar="20m|TIME", help="From now on, or a time like 2026-01-05T08:15:00Z."),
]
TypeOption = Annotated[
    EventType,
    typer.Option("--type", case_sensitive=False, metavar="TYPE", help=f"{', '.join(EventType)}."),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Reason = Annotated[str, typer.Option(metavar="TEXT", help="Why, for the history.")]
Vm = Annotated[
    str | None,
    typer.Option("--vm", metavar="NAME", help="Only its events.", autocompletion=vm_names),
]
Scope = Annotated[
    str | None, typer.Option(metavar="NAME", help="Only of this set, service or scale set.")
]
Limit = Annotated[int, typer.Option(min=1, max=10_000, help="Not more than this many.")]

_COLUMNS: Final[Columns] = {
    "EVENT ID": "event_id",
    "TYPE": "event_type",
    "STATUS": "event_status",
    "SOURCE": "event_source",
    "NOT BEFORE": lambda event: time_of(event["not_before"]),
    "RESOURCES": "resources",
}
_HISTORY: Final[Columns] = {
    "EVENT ID": "event_id",
    "TYPE": "event_type",
    "STATUS": "event_status",
    "OUTCOME": "outcome",
    "ENDED": lambda event: time_of(event["ended_at"]),
    "RESOURCES": "resources",
    "REASON": "reason",
}
_FIELDS: Final[Columns] = {
    "event id": "event_id",
    "type": "event_type",
    "status": "event_status",
    "source": "event_source",
    "scope": "scope_id",
    "update domain": "update_domain",
    "resources": "resources",
    "description": "description",
    "duration": lambda event: _seconds(event["duration_in_seconds"]),
    "maintenance": "maintenance_id",
    "host": "host",
    "created": lambda event: time_of(event["created_at"]),
    "not before": lambda event: time_of(event["not_before"]),
    "approved by": lambda event: [approval["name"] for approval in event["approvals"]],
    "started": lambda event: time_of(event["started_at"]),
    "overdue": lambda event: time_of(event["overdue_at"]),
    "ended": lambda event: time_of(event["ended_at"]),
    "outcome": "outcome",
    "reason": "reason",
}
_LEDGER: Final[Columns] = {
    "AT": lambda entry: time_of(entry["at"]),
    "WHAT": "what",
    "WHO": "who",
    "WHERE": "where",
    "DETAIL": "detail",
}


def print_events(events: Iterable[Row]) -> None:
    """Print one line for each of *events*."""
    print_table(events, _COLUMNS)


def show_begun(session: Session, event: Row, *, wait: bool, timeout: str | None) -> None:
    """Show *event*, which was just begun: as it is, or as it ended."""
    if wait:
        (event,) = wait_for_events(session, [event], timeout)
    session.show(event, lambda row: print_events([row]))
    if wait:
        require_success([event])


@command(app, "create")
def create(  # noqa: PLR0913 - one for each flag
    session: Session,
    *,
    event_type: TypeOption,
    resource: Annotated[
        list[str],
        typer.Option(
            metavar="VM", help="To which virtual machine; repeat it.", autocompletion=vm_names
        ),
    ],
    not_before: NotBefore = None,
    duration: Annotated[
        int | None, typer.Option(min=0, metavar="S", help="How long it takes, in seconds.")
    ] = None,
    description: Annotated[str, typer.Option(metavar="TEXT", help="What it is for.")] = "",
    started: Annotated[bool, typer.Option("--started", help="It has begun: no notice.")] = False,
    yes: Yes = False,
    wait: Wait = False,
    timeout: Timeout = None,
) -> None:
    """Announce an event: one for each scope and update domain of its resources.

    Example: forewarn event create --type Reboot --resource web-0 --not-before 20m
    """
    if started:
        confirm(f"Start {event_type} of {', '.join(resource)} without notice?", yes=yes)
    order = {
        "event_type": event_type,
        "resources": resource,
        "not_before": not_before,
        "duration_in_seconds": duration,
        "description": description,
        "started": started,
    }
    answer = session.post("events", body=order)
    if wait:
        answer = {"events": wait_for_events(session, answer["events"], timeout)}
    _show_several(session, answer)
    if wait:
        require_success(answer["events"])


@command(app, "list")
def list_some(
    session: Session,
    *,
    status: Annotated[
        list[EventStatus] | None,
        typer.Option(
            case_sensitive=False,
            metavar="STATUS",
            help="Scheduled and Started unless given; repeat it.",
        ),
    ] = None,
    vm: Vm = None,
    scope: Scope = None,
    limit: Limit = 1000,
) -> None:
    """List the events in flight.

    Example: forewarn event list --status Started
    """
    wanted = status or [EventStatus.SCHEDULED, EventStatus.STARTED]
    query = _given(vm=vm, scope=scope, limit=limit, status=list(wanted))
    _show_several(session, session.get("events", **query))


@command(app, "history")
def history(  # noqa: PLR0913 - one for each flag
    session: Session,
    *,
    vm: Vm = None,
    scope: Scope = None,
    event_type: Annotated[
        EventType | None,
        typer.Option("--type", case_sensitive=False, metavar="TYPE", help="Only of this type."),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Ended at 14:05, '2h ago' or a time, or later."),
    ] = None,
    until: Annotated[str | None, typer.Option(metavar="TIME", help="Ended before that.")] = None,
    limit: Limit = 1000,
) -> None:
    """List the events that have ended: Completed, with what came of it, or Canceled.

    Example: forewarn event history --vm web-0 --since '2h ago'
    """
    query = _given(vm=vm, scope=scope, event_type=event_type, since=since, until=until, limit=limit)
    answer = session.get("events", "history", **query)
    session.show(answer, lambda got: print_table(got["events"], _HISTORY))


@command(app, "show")
def show(session: Session, event_id: EventIdArgument) -> None:
    """Show one event and what has happened to it.

    Example: forewarn event show 602D9444-D2CD-49C7-8624-8643E7171297
    """
    session.show(session.get("events", event_id), _print_one)


@command(app, "explain")
def explain(session: Session, event_id: EventIdArgument) -> None:
    """Say why an event is not moving: who has not approved, what holds it, for how long.

    Example: forewarn event explain 602D9444-D2CD-49C7-8624-8643E7171297
    """
    session.show(session.get("events", event_id, "explain"), _print_reasons)


@command(app, "watch")
def watch(
    session: Session,
    *,
    vm: Vm = None,
    event: Annotated[
        str | None, typer.Option(metavar="ID", help="Only this event.", autocompletion=event_ids)
    ] = None,
    after: Annotated[
        int | None,
        typer.Option(min=0, metavar="N", help="From the line after this one on; 0 is all."),
    ] = None,
) -> None:
    """Print what happens to events, a line each, until Ctrl-C; across restarts of the server.

    Example: forewarn event watch --vm web-0
    """
    query: dict[str, str | int] = _given(vm=vm, event_id=event, after=after)
    try:
        for line in follow(session, "events", "watch", **query):
            is_read_by_people = session.output is Output.TABLE
            typer.echo(_one_line(line) if is_read_by_people else json.dumps(line))
    except KeyboardInterrupt:
        raise typer.Exit(ExitCode.INTERRUPTED) from None


@command(app, "seen")
def seen(
    session: Session,
    *,
    vm: Annotated[
        str,
        typer.Option("--vm", metavar="NAME", help="Who could read it.", autocompletion=vm_names),
    ],
    at: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="14:05 (GMT, today), '10m ago' or a time; else now."),
    ] = None,
    api_version: Annotated[
        str | None, typer.Option(metavar="VERSION", help="The newest unless given.")
    ] = None,
) -> None:
    """Print the exact document that a virtual machine could read at a moment.

    Example: forewarn event seen --vm web-0 --at 14:05
    """
    query = _given(**{"at": at, "api-version": api_version})
    typer.echo(session.get_bytes("virtual-machines", vm, "seen", **query), nl=False)


@command(app, "approve")
def approve(
    session: Session, event_id: EventIdArgument, *, wait: Wait = False, timeout: Timeout = None
) -> None:
    """Approve for everybody; it starts as soon as it may.

    Example: forewarn event approve 602D9444-D2CD-49C7-8624-8643E7171297
    """
    event = session.post("events", event_id, "approve")
    show_begun(session, event, wait=wait, timeout=timeout)


@command(app, "postpone")
def postpone(
    session: Session,
    event_id: EventIdArgument,
    *,
    not_before: Annotated[
        str,
        typer.Option(metavar="20m|TIME", help="From now on, or a time like 2026-01-05T08:15:00Z."),
    ],
) -> None:
    """Move to a later time, as far as the policy of its scope allows.

    Example: forewarn event postpone 602D9444-D2CD-49C7-8624-8643E7171297 --not-before 1h
    """
    _change(session, event_id, "postpone", {"not_before": not_before})


@command(app, "start")
def start(
    session: Session,
    event_id: EventIdArgument,
    *,
    yes: Yes = False,
    wait: Wait = False,
    timeout: Timeout = None,
) -> None:
    """Start now, past approvals, NotBefore and host operation.

    Example: forewarn event start 602D9444-D2CD-49C7-8624-8643E7171297 --yes
    """
    confirm(f"Start {event_id} now, whoever is not ready?", yes=yes)
    event = session.post("events", event_id, "start")
    show_begun(session, event, wait=wait, timeout=timeout)


@command(app, "complete")
def complete(
    session: Session,
    event_id: Annotated[
        str | None, typer.Argument(metavar="ID", help="The EventId.", autocompletion=event_ids)
    ] = None,
    *,
    every: Annotated[bool, typer.Option("--all", help="Every Started event.")] = False,
    failed: Annotated[bool, typer.Option("--failed", help="It did not succeed.")] = False,
    reason: Reason = "",
) -> None:
    """End a Started event, or all of them.

    Example: forewarn event complete --all
    """
    if every == (event_id is not None) or (every and (failed or reason)):
        message = "Name one event, or say --all and nothing else."
        raise CommandError(message, code=ExitCode.USAGE, hint="try: forewarn event complete --help")
    if event_id is None:
        _show_several(session, session.post("events", "complete-all"))
        return
    outcome = "failed" if failed else "succeeded"
    _change(session, event_id, "complete", {"outcome": outcome, "reason": reason})


@command(app, "cancel")
def cancel(session: Session, event_id: EventIdArgument, *, reason: Reason = "") -> None:
    """Withdraw a Scheduled event.

    Example: forewarn event cancel 602D9444-D2CD-49C7-8624-8643E7171297
    """
    _change(session, event_id, "cancel", {"reason": reason})


def _change(session: Session, event_id: str, verb: str, body: object = None) -> None:
    event = session.post("events", event_id, verb, body=body)
    session.show(event, lambda row: print_events([row]))


def _show_several(session: Session, answer: Row) -> None:
    session.show(answer, lambda got: print_events(got["events"]))


def _given(**query: T | None) -> dict[str, T]:
    return {name: value for name, value in query.items() if value is not None}


def _print_one(event: Row) -> None:
    print_fields(event, _FIELDS)
    typer.echo()
    print_table(event["ledger"], _LEDGER)


def _print_reasons(explanation: Row) -> None:
    typer.echo(f"{explanation['event_id']} is {explanation['event_status']}.")
    for reason in explanation["reasons"]:
        typer.echo(f"{'-' if reason['holds'] else ' '} {reason['sentence']}")


def _one_line(line: Row) -> str:
    of = f"{line['event_type']} of {','.join(line['resources'])}"
    detail = f": {line['detail']}" if line["detail"] else ""
    said = f"{line['what']} by {line['who']}"
    return f"{time_of(line['at'])}  {line['event_id']}  {said}  {of}{detail}"


def _seconds(duration: int | None) -> str:
    return "" if duration is None else f"{duration} s"
