"""`forewarn event`: announcing events, following them, and changing their course."""

from dataclasses import replace
from typing import Annotated, Final

import typer

from forewarn.cli.arguments import AFFECTED, EventArgument, event_ids, vm_names
from forewarn.cli.catalogue import noun
from forewarn.cli.errors import CommandError, ExitCode
from forewarn.cli.event_tables import (
    EVENT_COLUMNS,
    HISTORY,
    REHEARSED,
    one_line,
    print_event,
    print_reasons,
    say_how_split,
)
from forewarn.cli.ids import complete_id
from forewarn.cli.options import (
    BEGINS,
    DRY_RUN,
    EVENT_TYPE,
    REQUIRED,
    YES,
    Flag,
    Given,
    Limit,
    argument,
    option,
    switch,
    taking,
    text,
    toggle,
)
from forewarn.cli.output import (
    Output,
    Row,
    print_bytes,
    print_line,
    print_one_of_many,
    print_table,
    table_of,
)
from forewarn.cli.patience import follow, require_success, wait_for_events
from forewarn.cli.session import Session, command
from forewarn.cli.times import ahead_option, duration_option, past_option, read_seconds
from forewarn.protocol.vocabulary import EventStatus

app = noun("event")

ReasonOption = Annotated[str, option("TEXT", "Reason, for the history.")]

_NOT_BEFORE: Final = ahead_option("NotBefore")
_ORDER: Final = {
    "event_type": EVENT_TYPE,
    "resource": AFFECTED,
    "not_before": Flag(option=_NOT_BEFORE),
    "duration": Flag(
        option=duration_option("Expected duration."), key="duration_in_seconds", read=read_seconds
    ),
    "description": text("TEXT", "Description shown to virtual machines."),
    "started": toggle("--started", "Start at once, without notice."),
}
_OF_VM: Final = text(
    "NAME", "Only events of this virtual machine.", "--vm", autocompletion=vm_names
)
_OF_SCOPE: Final = text("NAME", "Only events of this set, service or scale set.")
_FILTERS: Final = {
    "status": Flag(
        kind=list[EventStatus],
        option=option(
            "STATUS",
            "EventStatus (default: Scheduled and Started); repeatable.",
            case_sensitive=False,
        ),
    ),
    "vm": _OF_VM,
    "scope": _OF_SCOPE,
}
_PAST: Final = {
    "vm": _OF_VM,
    "scope": _OF_SCOPE,
    "event_type": replace(
        EVENT_TYPE,
        option=option("TYPE", "Only events of this type.", "--type", case_sensitive=False),
        default=None,
    ),
    "since": Flag(option=past_option("Ended since")),
    "until": Flag(option=past_option("Ended before")),
}
_WATCHED: Final = {
    "vm": _OF_VM,
    "event": text("ID", "Only this event.", autocompletion=event_ids),
    "after": Flag(
        kind=int,
        option=option("N", "Continue after this sequence number (0: from the first).", min=0),
    ),
}
_SEEN: Final = {
    "vm": Flag(
        option=option("NAME", "Name of the virtual machine.", "--vm", autocompletion=vm_names),
        default=REQUIRED,
    ),
    "at": Flag(option=past_option("Poll time (default: now)")),
    "api_version": text("VERSION", "api-version (default: the newest).", key="api-version"),
}


def show_events(session: Session, answer: Row) -> None:
    """Show one event or several: as they are, or would be, or as they ended if that is awaited."""
    if session.wait and not session.dry_run:
        ended = wait_for_events(session, _events_of(answer))
        answer = {"events": ended} if "events" in answer else ended[0]
    columns = REHEARSED if session.dry_run else EVENT_COLUMNS
    session.show(answer, lambda got: print_table(_events_of(got), columns))
    if session.wait and not session.dry_run:
        require_success(_events_of(answer))


def _events_of(answer: Row) -> list[Row]:
    events: list[Row] = answer.get("events", [answer])
    return events


@command(app, "create", YES, *BEGINS)
@taking(_ORDER)
def create(session: Session, order: Given) -> None:
    """Announce an event for one or more virtual machines.

    Each update domain of each scope gets its own event.

    Example: forewarn event create --type Reboot --resource web-0 --not-before 20m
    """
    if order["started"]:
        of = ", ".join(order["resources"])
        session.confirm(f"Start {order['event_type']} of {of} without notice?")
    answer = session.post("events", body=order)
    if session.output is Output.TABLE:
        say_how_split(answer["events"])
    show_events(session, answer)


@command(app, "list")
@taking(_FILTERS)
def list_some(session: Session, filters: Given, *, limit: Limit = None) -> None:
    """List the events in flight.

    Example: forewarn event list --status Started
    """
    show_events(session, session.list("events", limit=limit, **filters))


@command(app, "history")
@taking(_PAST)
def history(session: Session, filters: Given, *, limit: Limit = None) -> None:
    """List events that have ended, with their outcomes.

    Example: forewarn event history --vm web-0 --since 2h
    """
    found = session.list("events", "history", limit=limit, **filters)
    session.show(found, table_of("events", HISTORY))


@command(app, "show")
def show(session: Session, event_id: EventArgument) -> None:
    """Show one event and its history.

    Example: forewarn event show 602D9444-D2CD-49C7-8624-8643E7171297
    """
    session.show(session.get("events", event_id), print_event)


@command(app, "explain")
def explain(session: Session, event_id: EventArgument) -> None:
    """Explain why an event is waiting.

    It names the VMs that have not approved, and says what holds the event and until
    when.

    Example: forewarn event explain 602D9444-D2CD-49C7-8624-8643E7171297
    """
    session.show(session.get("events", event_id, "explain"), print_reasons)


@command(app, "watch")
@taking(_WATCHED)
def watch(session: Session, query: Given) -> None:
    """Print changes to events until Ctrl-C.

    The command reconnects if the server restarts.

    Example: forewarn event watch --vm web-0
    """
    if event := query.pop("event", None):
        query["event_id"] = complete_id(session.get, "events", event)
    try:
        for line in follow(session, "events", "watch", **query):
            print_one_of_many(line, session.output, lambda it: print_line(one_line(it)))
    except KeyboardInterrupt:
        raise typer.Exit(ExitCode.INTERRUPTED) from None


@command(app, "seen")
@taking(_SEEN)
def seen(session: Session, query: Given) -> None:
    """Print the document of a virtual machine at a given time.

    The output is what a poll at that time would have returned, byte for byte.

    Example: forewarn event seen --vm web-0 --at 14:05
    """
    vm = query.pop("vm")
    print_bytes(session.get_bytes("virtual-machines", vm, "seen", **query))


@command(app, "approve", *BEGINS)
def approve(session: Session, event_id: EventArgument) -> None:
    """Approve an event for all its virtual machines.

    Example: forewarn event approve 602D9444-D2CD-49C7-8624-8643E7171297
    """
    show_events(session, session.post("events", event_id, "approve"))


@command(app, "postpone", DRY_RUN)
def postpone(
    session: Session, event_id: EventArgument, *, not_before: Annotated[str, _NOT_BEFORE]
) -> None:
    """Move an event to a later time, within the policy of its scope.

    Example: forewarn event postpone 602D9444-D2CD-49C7-8624-8643E7171297 --not-before 1h
    """
    body = {"not_before": not_before}
    show_events(session, session.post("events", event_id, "postpone", body=body))


@command(app, "start", YES, *BEGINS)
def start(session: Session, event_id: EventArgument) -> None:
    """Start an event now.

    The event does not wait for approvals, NotBefore or other events on its host.

    Example: forewarn event start 602D9444-D2CD-49C7-8624-8643E7171297 --yes
    """
    event_id = complete_id(session.get, "events", event_id)
    session.confirm(f"Start {event_id} now, without waiting for approvals?")
    show_events(session, session.post("events", event_id, "start"))


@command(app, "complete", DRY_RUN)
def complete(
    session: Session,
    event_id: Annotated[
        str | None, argument("ID", "EventId, or its first characters.", autocompletion=event_ids)
    ] = None,
    *,
    every: Annotated[bool, switch("All Started events.", "--all")] = False,
    failed: Annotated[bool, switch("Record the event as failed.", "--failed")] = False,
    reason: ReasonOption = "",
) -> None:
    """Complete a Started event, or all of them.

    Example: forewarn event complete --all
    """
    if every == (event_id is not None) or (every and (failed or reason)):
        message = "Name one event, or use --all alone."
        raise CommandError(message, code=ExitCode.USAGE, hint="try: forewarn event complete --help")
    if event_id is None:
        answer = session.post("events", "complete-all")
    else:
        body = {"outcome": "failed" if failed else "succeeded", "reason": reason}
        answer = session.post("events", event_id, "complete", body=body)
    show_events(session, answer)
    for event in _events_of(answer):
        if event["event_status"] == "Started":
            # On the other stream, for a program reads the answer itself.
            names = ", ".join(event["resources"])
            ending = "has failed" if failed else "is done"
            print_line(f"{names} {ending}; its event ends with {event['host']}", err=True)


@command(app, "cancel", DRY_RUN)
def cancel(
    session: Session,
    event_id: EventArgument,
    *,
    reason: ReasonOption = "",
    operation: Annotated[
        bool, switch("Cancel all events of the same operation on its host.", "--operation")
    ] = False,
) -> None:
    """Withdraw a Scheduled event.

    Example: forewarn event cancel 602D9444-D2CD-49C7-8624-8643E7171297
    """
    body = {"reason": reason, "operation": operation}
    show_events(session, session.post("events", event_id, "cancel", body=body))
