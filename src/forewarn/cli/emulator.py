"""`forewarn emulator`: run other people's programs as if they were in a virtual machine."""

import json
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from forewarn.cli.arguments import vm_names
from forewarn.cli.catalogue import noun
from forewarn.cli.errors import CommandError, ExitCode, reported_errors
from forewarn.cli.options import Limit, argument, option, speed_option, switch
from forewarn.cli.output import Columns, print_line, table_of, wall_time_of
from forewarn.cli.own_server import (
    CONTROL_PORT,
    LOCALHOST,
    listen_locally,
    make_folder,
    own_settings,
)
from forewarn.cli.session import Session, command
from forewarn.cli.signals import KILLED, StopSignals, stop_signals
from forewarn.domain.errors import InvalidNameError
from forewarn.domain.names import check_name
from forewarn.environment import environment_with
from forewarn.settings_table import ClockKind

if TYPE_CHECKING:
    import asyncio

    from forewarn.settings import Settings

app = noun("emulator")

_CANNOT_RUN: Final = 127


@app.command("netns")
def netns(
    command: Annotated[list[str], argument("-- COMMAND", "The command to run.")],
    *,
    vm: Annotated[str, option("NAME", "Which virtual machine the command is in.")] = "vm-0",
    fleet: Annotated[
        Path | None, option("FILE", "Fleet file (default: only that virtual machine).")
    ] = None,
    clock: Annotated[ClockKind, switch("How maintenance time passes.")] = ClockKind.REAL,
    speed: Annotated[float, speed_option("notice and simulated impact")] = 1,
) -> None:
    """Run a command in a network where 169.254.169.254 is forewarn.

    For programs that have the address built in. The host name there is the name of
    the virtual machine. Nothing else can be reached from there. Linux only; as root,
    or where user namespaces are allowed. Ends with the command, and as it does.

    Example: forewarn emulator netns --speed 60 -- ./my-handler.sh
    """
    with stop_signals() as signals, reported_errors("emulator netns"), ExitStack() as closing:
        _check(vm)
        folder = make_folder("forewarn-", closing)
        outside = closing.enter_context(listen_locally(CONTROL_PORT))
        declared = fleet or _declare_alone(vm, folder)
        settings = own_settings(folder, declared, speed, default_vm=vm, clock=clock)
        environment = _environment(outside.getsockname()[1], folder)
        code = _run(command, settings, outside, environment, signals)
    raise typer.Exit(code)


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


def _check(vm: str) -> None:
    """Refuse what cannot be a virtual machine, or anything where it cannot work."""
    if sys.platform != "linux":
        message = "There are network namespaces on Linux only."
        raise CommandError(message, code=ExitCode.FAILED, hint="try: forewarn serve")
    try:
        check_name(vm, "virtual machine")
    except InvalidNameError as error:
        raise CommandError(f"--vm: {error}", code=ExitCode.USAGE) from error


def _declare_alone(vm: str, folder: Path) -> Path:
    path = folder / "fleet.toml"
    path.write_text(f"[[virtual_machine]]\nname = {json.dumps(vm)}\n", encoding="utf-8")
    return path


def _environment(port: int, folder: Path) -> Mapping[str, str]:
    """Return what the commands of `forewarn` need, inside and outside alike."""
    return {
        "FOREWARN_SERVER": f"http://{LOCALHOST}:{port}",
        "FOREWARN_STATE_DIR": str(folder),
    }


def _run(
    command: Sequence[str],
    settings: "Settings",
    outside: socket.socket,
    environment: Mapping[str, str],
    signals: StopSignals,
) -> int:
    from forewarn.bootstrap.server import serve_during  # noqa: PLC0415 - needs the server install
    from forewarn.bootstrap.start import Listeners, read_fleet_declaration  # noqa: PLC0415
    from forewarn.emulator.netns import METADATA_ADDRESS, enter_network_namespace  # noqa: PLC0415
    from forewarn.metadata.http import open_listener  # noqa: PLC0415

    host_name = settings.default_vm or ""
    if (declaration := read_fleet_declaration(settings.fleet)) is not None:
        declaration.check()  # before this process leaves its network
        host_name = declaration.host_name(host_name)
    enter_network_namespace(host_name)
    ended_with = ExitCode.FAILED.value
    inside = open_listener(LOCALHOST, outside.getsockname()[1])
    with open_listener(METADATA_ADDRESS, 80) as metadata, inside:

        async def errand() -> None:
            nonlocal ended_with
            _say_where_things_are(settings, environment)
            ended_with = await _run_to_the_end(command, environment_with(environment), signals)

        listeners = Listeners(metadata=(metadata,), control=(outside, inside))
        serve_during(settings, listeners, errand)
    return ended_with


def _say_where_things_are(settings: "Settings", environment: Mapping[str, str]) -> None:
    words = " ".join(f"{name}={value}" for name, value in environment.items())
    print_line(f"forewarn: 169.254.169.254 is ready for {settings.default_vm}.", err=True)
    print_line(f"  elsewhere: {words} forewarn vm restart {settings.default_vm}", err=True)


async def _run_to_the_end(
    command: Sequence[str], environment: Mapping[str, str], signals: StopSignals
) -> int:
    import asyncio  # noqa: PLC0415 - slow to load

    early: list[int] = []
    signals.hand_to(early.append)
    try:
        process = await asyncio.create_subprocess_exec(*command, env=environment)
    except OSError as error:
        print_line(f"forewarn: {command[0]} cannot be run: {error.strerror}.", err=True)
        return _CANNOT_RUN
    signals.hand_to(lambda number: _send(process, number))
    for number in early:
        _send(process, number)
    # Ctrl-C reaches the command by itself, and it is for the command to say what that means.
    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, lambda: None)
    code = await process.wait()
    return code if code >= 0 else KILLED - code


def _send(process: "asyncio.subprocess.Process", number: int) -> None:
    with suppress(ProcessLookupError):  # it has ended
        process.send_signal(number)
