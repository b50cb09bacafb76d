"""`forewarn emulator`: programs of any kind beside a server that is there for them alone."""

from pathlib import Path
from typing import Annotated, Any, Final

from forewarn.cli.arguments import vm_names
from forewarn.cli.catalogue import noun
from forewarn.cli.emulation import OPTIONS, Emulation, Program, emulate
from forewarn.cli.options import Limit, accepting, option, speed_option, switch
from forewarn.cli.output import Columns, table_of, wall_time_of
from forewarn.cli.session import Session, command
from forewarn.settings_table import ClockKind

app = noun(
    "emulator", "forewarn emulator -- COMMAND is short for forewarn emulator run -- COMMAND."
)


@app.command("run")
@accepting(*OPTIONS)
def run(
    command: Program = None,
    *,
    vm: Annotated[
        list[str] | None,
        option("NAME", "VM that the program runs on [vm-0]; repeat for more VMs."),
    ] = None,
    fleet: Annotated[
        Path | None, option("FILE", "Fleet file (default: create any VM that polls).")
    ] = None,
    clock: Annotated[ClockKind, switch("Clock for maintenance time.")] = ClockKind.REAL,
    speed: Annotated[float, speed_option("notice and simulated impact")] = 1,
    **flags: Any,
) -> None:
    """Run a program against a throw-away server, or serve until Ctrl-C.

    The program finds its endpoint in FOREWARN_METADATA_URL; the endpoints of other virtual
    machines are below it, at /vm/NAME. The program can call forewarn commands. The server
    stops when the program ends, and the command returns the program's exit code. Without
    a program, the command prints the variables to export.

    With --netns, the program finds the endpoint at 169.254.169.254, has the host name of
    the virtual machine, and reaches nothing else. This needs root or user namespaces.

    Example: forewarn emulator run --clock virtual -- npm test

    Example: forewarn emulator --netns --speed 60 -- ./my-handler.sh

    Example: forewarn emulator --port 8169 --ready-file emulator.env &
    """
    emulate(
        "emulator run",
        lambda: Emulation(
            command=command, vms=vm or [], fleet=fleet, clock=clock, speed=speed, **flags
        ),
    )


_COLUMNS: Final[Columns] = {
    "at": lambda entry: wall_time_of(entry["at"]),
    "vm": "vm",
    "method": "method",
    "path": "path",
    "status": lambda entry: "reset" if entry["is_reset"] else entry["status"],
    "seconds": lambda entry: "" if entry["seconds"] is None else f"{entry['seconds']:.3f}",
    "incarnation": "document_incarnation",
    "error": "error",
}


@command(app, "requests")
def requests(
    session: Session,
    *,
    vm: Annotated[
        str | None,
        option("NAME", "Only requests from this virtual machine.", autocompletion=vm_names),
    ] = None,
    limit: Limit = None,
) -> None:
    """List requests from virtual machines and their responses.

    Only test servers record them: forewarn emulator and forewarn serve --journal.

    Example: forewarn emulator requests --vm web-0
    """
    wanted = {} if vm is None else {"vm": vm}
    answer = session.list("requests", limit=limit, **wanted)
    session.show(answer, table_of("requests", _COLUMNS))
