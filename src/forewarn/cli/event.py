"""`forewarn event`: announcing events, following them, and changing their course."""

from typing import Annotated, Final, TypeVar

import typer

from forewarn.cli.catalogue import noun
from forewarn.cli.completing import event_ids, vm_names
from forewarn.cli.errors import CommandError, ExitCode, confirm
from forewarn.cli.event_tables import (
    one_line,
    print_event,
    print_events,
    print_reasons,
    print_rehearsed,
    say_how_split,
)
from forewarn.cli.following import follow
from forewarn.cli.ids import complete_id
from forewarn.cli.output import (
    Columns,
    Output,
    Row,
    print_bytes,
    print_line,
    print_one_of_many,
    print_table,
    time_of,
)
from forewarn.cli.rehearsal import DryRun, show_rehearsed
from forewarn.cli.session import Session, command
from forewarn.cli.times import ahead_option, duration_option, past_option, read_seconds
from forewarn.cli.waiting import Timeout, Wait, require_success, wait_for_events
from forewarn.protocol.vocabulary import EventStatus, EventType

T = TypeVar("T")

app = noun("event")

EventIdArgument = Annotated[
    str,
    typer.Argument(metavar="ID", help="The EventId, or its beginning.", autocompletion=event_ids),
]
_NOT_BEFORE = ahead_option("Not before")
TypeOption = Annotated[
    EventType,
    typer.Option("--type", case_sensitive=False, metavar="TYPE", help=f"{', '.join(EventType)}."),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
Reason = Annotated[str, typer.Option(metavar="TEXT", help="Reason, for the history.")]
Vm = Annotated[
    str | None,
    typer.Option("--vm", metavar="NAME", help="Only its events.", autocompletion=vm_names),
]
Scope = Annotated[
    str | None, typer.Option(metavar="NAME", help="Only of this set, service or scale set.")
]
Limit = Annotated[
    int | None, typer.Option(metavar="N", min=1, max=10_000, help="Only the newest N.")
]

_HISTORY: Final[Columns] = {
    "EVENT ID": "event_id",
    "TYPE": "event_type",
    "STATUS": "event_status",
    "OUTCOME": "outcome",
    "ENDED": lambda event: time_of(event["ended_at"]),
    "RESOURCES": "resources",
    "REASON": "reason",
}


def show_begun(
    session: Session, event: Row, *, dry_run: bool, wait: bool, timeout: str | None
) -> None:
    """Show *event*, which was just begun: as it is, or would be, or as it ended."""
    if dry_run:
        show_rehearsed(session, event, lambda row: print_rehearsed([row]))
        return
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
            metavar="VM", help="Affected virtual machine; repeatable.", autocompletion=vm_names
        ),
    ],
    not_before: Annotated[str | None, _NOT_BEFORE] = None,
    duration: Annotated[str | None, duration_option("How long it takes.")] = None,
    description: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="Description that virtual machines see."),
    ] = None,
    started: Annotated[
        bool, typer.Option("--started", help="Start it at once, without notice.")
    ] = False,
    yes: Yes = False,
    dry_run: DryRun = False,
    wait: Wait = False,
    timeout: Timeout = None,
) -> None:
    """Announce an event for one or more virtual machines.

    Virtual machines of different scopes or update domains get one event each.

    Example: forewarn event create --type Reboot --resource web-0 --not-before 20m
    """
    if started and not dry_run:
        confirm(f"Start {event_type} of {', '.join(resource)} without notice?", yes=yes)
    order = {
        "event_type": event_type,
        "resources": resource,
        "not_before": not_before,
        "duration_in_seconds": None if duration is None else read_seconds(duration),
        "description": description,
        "started": started,
    }
    answer = session.post("events", body=order, dry_run=dry_run)
    if session.output is Output.TABLE:
        say_how_split(answer["events"])
    if dry_run:
        _show_rehearsed(session, answer)
        return
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
            help="EventStatus (default: Scheduled and Started); repeatable.",
        ),
    ] = None,
    vm: Vm = None,
    scope: Scope = None,
    limit: Limit = None,
) -> None:
    """List the events in flight.

    Example: forewarn event list --status Started
    """
    query = _given(vm=vm, scope=scope, status=status)
    _show_several(session, session.list("events", "events", limit=limit, **query))


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
    since: Annotated[str | None, past_option("Ended since")] = None,
    until: Annotated[str | None, past_option("Ended before")] = None,
    limit: Limit = None,
) -> None:
    """List the events that have ended, and how they ended.

    Example: forewarn event history --vm web-0 --since 2h
    """
    query = _given(vm=vm, scope=scope, event_type=event_type, since=since, until=until)
    answer = session.list("events", "events", "history", limit=limit, **query)
    session.show(answer, lambda got: print_table(got["events"], _HISTORY))


@command(app, "show")
def show(session: Session, event_id: EventIdArgument) -> None:
    """Show one event and what has happened to it.

    Example: forewarn event show 602D9444-D2CD-49C7-8624-8643E7171297
    """
    session.show(session.get("events", event_id), print_event)


@command(app, "explain")
def explain(session: Session, event_id: EventIdArgument) -> None:
    """Say why an event waits.

    The answer names who has not approved, what holds the event, and until when.

    Example: forewarn event explain 602D9444-D2CD-49C7-8624-8643E7171297
    """
    session.show(session.get("events", event_id, "explain"), print_reasons)


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
        typer.Option(min=0, metavar="N", help="Continue after this line; 0 for all."),
    ] = None,
) -> None:
    """Print each change of an event, until Ctrl-C.

    The command reconnects if the server restarts.

    Example: forewarn event watch --vm web-0
    """
    wanted = event and complete_id(session.get, "events", event)
    query: dict[str, str | int] = _given(vm=vm, event_id=wanted, after=after)
    try:
        for line in follow(session, "events", "watch", **query):
            print_one_of_many(line, session.output, lambda it: print_line(one_line(it)))
    except KeyboardInterrupt:
        raise typer.Exit(ExitCode.INTERRUPTED) from None


@command(app, "seen")
def seen(
    session: Session,
    *,
    vm: Annotated[
        str,
        typer.Option(
            "--vm",
            metavar="NAME",
            help="The virtual machine that could read it.",
            autocompletion=vm_names,
        ),
    ],
    at: Annotated[str | None, past_option("Default now")] = None,
    api_version: Annotated[
        str | None, typer.Option(metavar="VERSION", help="The api-version (default: the newest).")
    ] = None,
) -> None:
    """Print the document of a virtual machine at a given time.

    It is what a poll at that time would have returned, byte for byte.

    Example: forewarn event seen --vm web-0 --at 14:05
    """
    query = _given(**{"at": at, "api-version": api_version})
    print_bytes(session.get_bytes("virtual-machines", vm, "seen", **query))


@command(app, "approve")
def approve(
    session: Session,
    event_id: EventIdArgument,
    *,
    dry_run: DryRun = False,
    wait: Wait = False,
    timeout: Timeout = None,
) -> None:
    """Approve an event for all its virtual machines.

    Example: forewarn event approve 602D9444-D2CD-49C7-8624-8643E7171297
    """
    event = session.post("events", event_id, "approve", dry_run=dry_run)
    show_begun(session, event, dry_run=dry_run, wait=wait, timeout=timeout)


@command(app, "postpone")
def postpone(
    session: Session,
    event_id: EventIdArgument,
    *,
    not_before: Annotated[str, _NOT_BEFORE],
    dry_run: DryRun = False,
) -> None:
    """Move an event to a later time, within the policy of its scope.

    Example: forewarn event postpone 602D9444-D2CD-49C7-8624-8643E7171297 --not-before 1h
    """
    _change(session, event_id, "postpone", {"not_before": not_before}, dry_run=dry_run)


@command(app, "start")
def start(
    session: Session,
    event_id: EventIdArgument,
    *,
    yes: Yes = False,
    dry_run: DryRun = False,
    wait: Wait = False,
    timeout: Timeout = None,
) -> None:
    """Start an event now.

    This overrides approvals, NotBefore and the operation of its host.

    Example: forewarn event start 602D9444-D2CD-49C7-8624-8643E7171297 --yes
    """
    event_id = complete_id(session.get, "events", event_id)
    confirm(f"Start {event_id} now, without waiting for approvals?", yes=yes or dry_run)
    event = session.post("events", event_id, "start", dry_run=dry_run)
    show_begun(session, event, dry_run=dry_run, wait=wait, timeout=timeout)


@command(app, "complete")
def complete(
    session: Session,
    event_id: Annotated[
        str | None,
        typer.Argument(
            metavar="ID", help="The EventId, or its beginning.", autocompletion=event_ids
        ),
    ] = None,
    *,
    every: Annotated[bool, typer.Option("--all", help="All Started events.")] = False,
    failed: Annotated[bool, typer.Option("--failed", help="Record it as failed.")] = False,
    reason: Reason = "",
    dry_run: DryRun = False,
) -> None:
    """End a Started event, or all of them.

    Example: forewarn event complete --all
    """
    if every == (event_id is not None) or (every and (failed or reason)):
        message = "Name one event, or say --all and nothing else."
        raise CommandError(message, code=ExitCode.USAGE, hint="try: forewarn event complete --help")
    if event_id is None:
        answer = session.post("events", "complete-all", dry_run=dry_run)
        (_show_rehearsed if dry_run else _show_several)(session, answer)
        return
    outcome = "failed" if failed else "succeeded"
    body = {"outcome": outcome, "reason": reason}
    _change(session, event_id, "complete", body, dry_run=dry_run)


WholeOperation = Annotated[
    bool, typer.Option("--operation", help="Cancel all events of its host operation.")
]


@command(app, "cancel")
def cancel(
    session: Session,
    event_id: EventIdArgument,
    *,
    reason: Reason = "",
    operation: WholeOperation = False,
    dry_run: DryRun = False,
) -> None:
    """Withdraw a Scheduled event.

    Example: forewarn event cancel 602D9444-D2CD-49C7-8624-8643E7171297
    """
    body = {"reason": reason, "operation": operation}
    _change(session, event_id, "cancel", body, dry_run=dry_run)


def _change(session: Session, event_id: str, verb: str, body: object, *, dry_run: bool) -> None:
    event = session.post("events", event_id, verb, body=body, dry_run=dry_run)
    show_begun(session, event, dry_run=dry_run, wait=False, timeout=None)


def _show_several(session: Session, answer: Row) -> None:
    session.show(answer, lambda got: print_events(got["events"]))


def _show_rehearsed(session: Session, answer: Row) -> None:
    show_rehearsed(session, answer, lambda got: print_rehearsed(got["events"]))


def _given(**query: T | None) -> dict[str, T]:
    return {name: value for name, value in query.items() if value is not None}
