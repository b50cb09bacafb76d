"""`forewarn fault`: misbehaving towards one virtual machine, so that its clients can be tested."""

from collections.abc import Iterable
from typing import Annotated, Final

import typer

from forewarn.cli.catalogue import noun
from forewarn.cli.completing import vm_names
from forewarn.cli.output import Columns, Row, print_table
from forewarn.cli.session import Session, command
from forewarn.ports.faults import UNKNOWN_TYPE, Fault, FaultError, FaultKind

app = noun("fault")

Vm = Annotated[
    str, typer.Argument(metavar="VM", help="The virtual machine.", autocompletion=vm_names)
]

_COLUMNS: Final[Columns] = {
    "VM": "vm",
    "FAULT": "kind",
    "TIMES": "times",
    "SECONDS": lambda fault: "" if fault["seconds"] is None else f"{fault['seconds']:g}",
    "STATUS": "status",
    "RETRY AFTER": "retry_after",
    "TYPE": "event_type",
}


@command(app, "set")
def set_one(  # noqa: PLR0913 - one for each flag
    session: Session,
    vm: Vm,
    kind: Annotated[FaultKind, typer.Argument(metavar="KIND", help="The kind of fault.")],
    *,
    times: Annotated[
        int | None,
        typer.Option(metavar="N", help="Only the next N requests (default: until cleared)."),
    ] = None,
    seconds: Annotated[float | None, typer.Option(metavar="S", help="Length of the delay.")] = None,
    status: Annotated[
        int | None, typer.Option(metavar="STATUS", help="404, 410, 429, 500, 503 or another error.")
    ] = None,
    retry_after: Annotated[
        int | None, typer.Option(metavar="S", help="Send Retry-After with the status.")
    ] = None,
    event_type: Annotated[
        str | None,
        typer.Option("--type", metavar="WORD", help=f"The unknown type (default: {UNKNOWN_TYPE})."),
    ] = None,
) -> None:
    """Set a fault; it replaces one of the same kind.

    Example: forewarn fault set web-0 status --status 429 --times 3
    """
    try:
        fault = Fault(
            kind=kind,
            times=times,
            seconds=seconds,
            status=status,
            retry_after=retry_after,
            event_type=event_type,
        )
    except FaultError as error:
        raise typer.BadParameter(str(error)) from error
    answer = session.put("virtual-machines", vm, "faults", kind, body=fault.parameters())
    session.show(answer, lambda row: _print([row]))


@command(app, "list")
def list_all(session: Session) -> None:
    """List every fault, with the times it has left.

    Example: forewarn fault list
    """
    session.show(session.get("faults"), lambda got: _print(got["faults"]))


@command(app, "clear")
def clear(
    session: Session,
    vm: Vm,
    kind: Annotated[
        FaultKind | None, typer.Argument(metavar="KIND", help="Only this kind (default: all).")
    ] = None,
) -> None:
    """Clear faults, and list those that are left.

    Example: forewarn fault clear web-0
    """
    path = ("virtual-machines", vm, "faults")
    left = session.delete(*path) if kind is None else session.delete(*path, kind)
    session.show(left, lambda got: _print(got["faults"]))


def _print(faults: Iterable[Row]) -> None:
    print_table(faults, _COLUMNS)
