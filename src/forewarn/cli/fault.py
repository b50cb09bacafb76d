"""`forewarn fault`: misbehaving towards one virtual machine, so that its clients can be tested."""

from typing import Annotated, Final

import typer

from forewarn.cli.arguments import vm_names
from forewarn.cli.catalogue import noun
from forewarn.cli.options import Flag, Given, argument, option, taking, text
from forewarn.cli.output import (
    Columns,
    Output,
    OutputOption,
    print_answer,
    print_table,
    table_of,
)
from forewarn.cli.session import Session, command
from forewarn.domain.fault import FAULTS, UNKNOWN_TYPE, Fault, FaultError, FaultKind

app = noun("fault")

FaultyVm = Annotated[str, argument("VM", "Name of the virtual machine.", autocompletion=vm_names)]

_COLUMNS: Final[Columns] = {
    "vm": "vm",
    "fault": "kind",
    "times": "times",
    "seconds": lambda fault: "" if fault["seconds"] is None else f"{fault['seconds']:g}",
    "status": "status",
    "retry after": "retry_after",
    "type": "event_type",
}
_KINDS: Final[Columns] = {
    "fault": "kind",
    "required": "required",
    "optional": "optional",
    "effect": "effect",
}
_PARAMETERS: Final = {
    "times": Flag(
        kind=int, option=option("N", "Only the next N requests (default: until cleared).")
    ),
    "seconds": Flag(kind=float, option=option("S", "Length of the delay.")),
    "status": Flag(
        kind=int, option=option("STATUS", "HTTP status: 404, 410, 429, 500, 503 or another error.")
    ),
    "retry_after": Flag(kind=int, option=option("S", "Send Retry-After with the status.")),
    "event_type": text("WORD", f"Unknown event type to show (default: {UNKNOWN_TYPE}).", "--type"),
}


@command(app, "set")
@taking(_PARAMETERS)
def set_one(
    session: Session,
    given: Given,
    *,
    vm: FaultyVm,
    kind: Annotated[FaultKind, argument("KIND", "Kind of fault; see forewarn fault kinds.")],
) -> None:
    """Set a fault, replacing one of the same kind.

    Example: forewarn fault set web-0 status --status 429 --times 3
    """
    try:
        fault = Fault(kind=kind, **given)
    except FaultError as error:
        raise typer.BadParameter(str(error)) from error
    answer = session.put("virtual-machines", vm, "faults", kind, body=fault.parameters())
    session.show(answer, lambda row: print_table([row], _COLUMNS))


@app.command("kinds")
def list_kinds(output: OutputOption = Output.TABLE) -> None:
    """List the kinds of fault, their options and their effects.

    Example: forewarn fault kinds
    """
    kinds = [
        {
            "kind": kind,
            "part": traits.part,
            "effect": traits.effect,
            "required": sorted(traits.needed),
            "optional": sorted(traits.optional),
        }
        for kind, traits in FAULTS.items()
    ]
    print_answer({"kinds": kinds}, output, table_of("kinds", _KINDS))


@command(app, "list")
def list_all(session: Session) -> None:
    """List all faults and how many more requests each affects.

    Example: forewarn fault list
    """
    session.show(session.get("faults"), table_of("faults", _COLUMNS))


@command(app, "clear")
def clear(
    session: Session,
    vm: FaultyVm,
    kind: Annotated[FaultKind | None, argument("KIND", "Only this kind (default: all).")] = None,
) -> None:
    """Clear faults, and list those that are left.

    Example: forewarn fault clear web-0
    """
    path = ("virtual-machines", vm, "faults")
    left = session.delete(*path) if kind is None else session.delete(*path, kind)
    session.show(left, table_of("faults", _COLUMNS))
