"""How a command fails: one line, a hint with what to try next, and an exit code."""

import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from enum import IntEnum
from typing import Final

import typer

from forewarn.cli.output import print_line, with_options
from forewarn.environment import CONFIG_FILE, SettingsError, has_foreign_settings_file
from forewarn.protocol.controls import printable
from forewarn.protocol.errors import ForewarnError


class ExitCode(IntEnum):
    """What a command ends with."""

    OK = 0
    FAILED = 1
    USAGE = 2
    NOT_FOUND = 3
    REFUSED = 4
    TIMED_OUT = 5
    UNREACHABLE = 6
    INTERRUPTED = 130


class CommandError(Exception):
    """A command cannot be done. *place* is a file and a line, where one is to blame.

    *more* are further lines, each with its place.
    """

    def __init__(
        self,
        message: str,
        *,
        code: ExitCode,
        hint: str = "",
        place: str = "forewarn",
        more: Sequence[str] = (),
    ) -> None:
        super().__init__(message)
        self.more = tuple(more)
        self.code = code
        self.hint = hint
        self.place = place


EXIT_CODES: Final[Mapping[int, ExitCode]] = {
    403: ExitCode.REFUSED,
    404: ExitCode.NOT_FOUND,
    409: ExitCode.REFUSED,
    421: ExitCode.REFUSED,
    422: ExitCode.REFUSED,
}
"""The exit code for each status the control API refuses with; any other means failed."""

BAD_USAGE: Final = frozenset({"duration", "moment", "unknown-api-version"})
"""The kinds of problems that are mistakes in the command line, whoever finds them."""


def exit_code_of(kind: str, status: int) -> ExitCode:
    """Return what a command ends with that was refused with *status* and a problem of *kind*."""
    return ExitCode.USAGE if kind in BAD_USAGE else EXIT_CODES.get(status, ExitCode.FAILED)


HINTS: Final[Mapping[str, str]] = {
    "unauthorized": (
        "run the command where the server's admin.token is, or set FOREWARN_TOKEN or "
        "FOREWARN_STATE_DIR"
    ),
    "host-refused": "try: --server with an address of the server, or serve --control-host NAME",
    "token-expired": "ask an admin for: forewarn token create NAME --role ROLE",
    "token-revoked": "ask an admin for: forewarn token create NAME --role ROLE",
    "role-too-low": "ask an admin for: forewarn token create NAME --role {needed}",
    "outside-scopes": "try: forewarn vm list, which shows what the token covers",
    "unknown-token": "try: forewarn token list",
    "token-name-taken": "try: forewarn token revoke {name}",
    "token-order": "try: forewarn token create --help",
    "unknown-event": "try: forewarn event list",
    "unknown-virtual-machine": "try: forewarn vm list",
    "unknown-host": "try: forewarn host list",
    "new-host": "try: forewarn host list; if it is new, add --new-host",
    "unknown-selection": "try: forewarn fleet show",
    "unknown-labels": "try: forewarn fleet export",
    "unknown-host-labels": "try: forewarn host list",
    "unknown-maintenance": "try: forewarn maintenance list",
    "maintenance-over": "try: forewarn maintenance status {maintenance_id}",
    "unknown-failure": "try: forewarn maintenance status {maintenance_id}",
    "unknown-place": "try: forewarn maintenance status {maintenance_id}",
    "still-under-way": "try: forewarn maintenance explain {maintenance_id}",
    "no-turn": "try: forewarn maintenance status {maintenance_id}",
    "task-not-over": "try: forewarn task list",
    "task-state": "try: forewarn task list",
    "unknown-task": "try: forewarn task list",
    "not-settleable": "try: forewarn task list, which shows what can be settled",
    "unknown-owner": "try: forewarn replica list",
    "owner-present": "try: forewarn replica list",
    "hand-over-refused": "try: forewarn replica list",
    "host-closed": "try: forewarn host open {host}",
    "host-under-way": "try: forewarn maintenance explain {maintenance_id}",
    "shared-database": "use a separate server: forewarn serve --database FILE",
    "unknown-scenario": "try: forewarn scenario list",
    "unknown-scenario-run": "try: forewarn scenario status",
    "scenario-over": "try: forewarn scenario status {run_id}",
    "unknown-notification": "try: forewarn notification list",
    "notification-not-failed": "try: forewarn notification list --failed",
    "unknown-schedule": "try: forewarn schedule list",
    "schedule-name-taken": "try: forewarn schedule show {name}",
    "schedule": "try: forewarn schedule create --help",
    "recurrence": "try: forewarn schedule create --help",
    "unknown-target": "try: forewarn notification targets",
    "gate-not-found": "try: forewarn gate list",
    "illegal-transition": "try: forewarn event show {event_id}",
    "postpone-refused": "try: forewarn event show {event_id}",
    "user-operation-in-flight": "try: forewarn event list --vm {vm}",
    "user-operation-limit": "try: forewarn event list",
    "host-in-use": "try: forewarn host show {host}",
    "host-busy": "try: forewarn maintenance status {maintenance_id}",
    "virtual-machine-busy": "try: forewarn event list --vm {vm}",
    "too-many-removals": "try: --dry-run; to remove all of them, add --allow-removals {removals}",
    "empty-fleet": "check the file; forewarn vm remove removes single machines",
    "virtual-machine-exists": "try: forewarn vm show {vm}",
    "precondition-failed": "it changed after you read it; read it again, then retry",
    "notice-too-short": "try: omit --not-before to use the earliest time",
    "moment": "try: a duration such as 20m",
    "not-seen": "try: --at {since}",
    "unknown-api-version": "try: omit --api-version to use the newest",
    "capacity": "try: forewarn maintenance plan, which lists every error",
    "window-too-short": "try: forewarn maintenance plan, which lists every error",
    "unknown-canary": "try: forewarn maintenance plan, which lists every error",
    "empty-selection": "try: forewarn maintenance start --type TYPE --scope NAME",
    "plan": "try: forewarn maintenance start --help",
    "shared-host": "try: forewarn vm list",
    "clock": "try: forewarn clock show",
    "store-unavailable": "the server still answers polls; fix this, then try again",
}
"""What to try next, by the kind of problem; the braces are filled from its members."""
_VOID: Final = frozenset({"token-expired", "token-revoked"})


def hint_for(kind: str, members: Mapping[str, object]) -> str:
    """Return what to try after a problem of *kind*, or nothing."""
    if kind in _VOID and members.get("name") == "admin":
        return "try: forewarn token renew-admin, where the server runs"
    try:
        return HINTS.get(kind, "").format_map(members)
    except KeyError:
        return ""


@contextmanager
def reported_errors(command: str = "serve") -> Generator[None]:
    """Turn every expected error into its line, its hint and its exit code.

    The help of *command* says what can be set.
    """
    if has_foreign_settings_file():
        problem = f"Ignored {CONFIG_FILE} in this directory: another user owns it or can write it."
        _report(problem, "if you trust it, make a copy that you own")
    try:
        yield
    except CommandError as error:
        _report(str(error), error.hint, place=error.place, more=error.more)
        raise typer.Exit(error.code) from None
    except SettingsError as error:
        _report(str(error), f"try: forewarn {command} --help")
        raise typer.Exit(ExitCode.USAGE) from None
    except ForewarnError as error:
        first, *more = str(error).splitlines() or [""]
        _report(first, "", more=more)
        raise typer.Exit(ExitCode.FAILED) from None
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("forewarn"):
            raise
        _report("This needs the server install.", "try: pip install 'forewarn[server]'")
        raise typer.Exit(ExitCode.USAGE) from None


def confirm(question: str) -> None:
    """Go on only if a person says so."""
    if not sys.stdin.isatty():
        message = f"{question} Cannot ask for confirmation without a terminal."
        raise CommandError(message, code=ExitCode.USAGE, hint="to confirm, add --yes")
    if not typer.confirm(printable(question), err=True):
        raise CommandError("Nothing was changed.", code=ExitCode.FAILED)


def _report(message: str, hint: str, *, place: str = "forewarn", more: Sequence[str] = ()) -> None:
    print_line(f"{place}: {' '.join(with_options(message).split())}", err=True)
    for line in more:
        print_line(with_options(line), err=True)
    if hint:
        print_line(f"  {hint}", err=True)
