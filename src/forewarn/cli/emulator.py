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
        option("NAME", "Virtual machine of the program [vm-0]; repeat it for others."),
    ] = None,
    fleet: Annotated[
        Path | None, option("FILE", "Fleet file (default: any virtual machine that asks).")
    ] = None,
    clock: Annotated[ClockKind, switch("How maintenance time passes.")] = ClockKind.REAL,
    speed: Annotated[float, speed_option("notice and simulated impact")] = 1,
    **flags: Any,
) -> None:
    """Run a program beside a throw-away server, or serve until Ctrl-C.

    The program finds the endpoint in FOREWARN_METADATA_URL, and other virtual machines
    below it at /vm/NAME. Commands of forewarn work in it. Everything ends with the
    program, with its exit code. Without one, what to export is printed.

    With --netns, 169.254.169.254 is the endpoint, the host name is that of the virtual
    machine, and nothing else can be reached; as root, or with user namespaces.

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
        str | None, option("NAME", "Only this virtual machine's.", autocompletion=vm_names)
    ] = None,
    limit: Limit = None,
) -> None:
    """List what virtual machines asked, and how they were answered.

    Only servers for tests keep that: those of forewarn emulator, and of serve --journal.

    Example: forewarn emulator requests --vm web-0
    """
    wanted = {} if vm is None else {"vm": vm}
    answer = session.list("requests", limit=limit, **wanted)
    session.show(answer, table_of("requests", _COLUMNS))
