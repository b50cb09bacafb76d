"""A throw-away server and the program beside it, for every command that starts one."""

import os
import shlex
import socket
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NoReturn

import typer

from forewarn.cli.companion import ready_file, run_to_the_end, until_stopped
from forewarn.cli.errors import CommandError, ExitCode, reported_errors
from forewarn.cli.options import NETNS, argument, keyword, option
from forewarn.cli.output import print_line
from forewarn.cli.own_server import LOCALHOST, make_folder, own_command, own_settings
from forewarn.cli.signals import StopSignals, held_back, stop_signals
from forewarn.domain.errors import InvalidNameError
from forewarn.domain.names import check_name, name_key
from forewarn.emulator.variables import METADATA_ADDRESS, endpoint_variables
from forewarn.environment import ADMIN_TOKEN_FILE
from forewarn.settings_table import ClockKind

if TYPE_CHECKING:
    from forewarn.bootstrap.listening import Listeners
    from forewarn.bootstrap.replica import Replica
    from forewarn.bootstrap.start import FleetDeclaration
    from forewarn.metadata.http import App
    from forewarn.settings import Settings

Around = Callable[["Replica", "App"], "App"]

_ONLY_VM: Final = "vm-0"
_FLEET: Final = "fleet.toml"
_TOKEN: Final = "FOREWARN_TOKEN"  # noqa: S105 - the name of the variable

Program = Annotated[
    list[str] | None, argument("-- COMMAND", "Program to run (default: serve until Ctrl-C).")
]
_Port = Annotated[int | None, option("PORT", "Port of the metadata endpoint.", min=1, max=65535)]
OPTIONS: Final = (
    keyword("port", _Port),
    keyword(
        "control_port",
        Annotated[int | None, option("PORT", "Port of the control API.", min=1, max=65535)],
    ),
    keyword(
        "ready_file",
        Annotated[
            Path | None, option("FILE", "Write the environment variables to this file when ready.")
        ],
    ),
    NETNS,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Emulation:
    """What a command line wants. The program is in the first of *vms*."""

    command: list[str] | None
    vms: list[str]
    fleet: Path | None = None
    clock: ClockKind = ClockKind.REAL
    speed: float = 1
    port: int | None = None
    control_port: int | None = None
    ready_file: Path | None = None
    netns: bool = False
    around: Around | None = field(default=None, repr=False)
    """What is put around the metadata endpoint; by default, every virtual machine that asks is
    made, unless a fleet says which there are."""


def emulate(verb: str, make: Callable[[], Emulation]) -> NoReturn:
    """Serve what *make* wants until its program ends, and exit as that does."""
    with stop_signals() as signals, reported_errors(verb), ExitStack() as closing:
        code = _emulate(make(), closing, signals)
    raise typer.Exit(code)


def _emulate(wanted: Emulation, closing: ExitStack, signals: StopSignals) -> int:
    _check(wanted)
    folder = make_folder("forewarn-", closing)
    declaration = _declare(wanted, folder)
    vm = _choose_vm(wanted, declaration)
    settings = own_settings(
        folder, declaration.path, wanted.speed, default_vm=vm, clock=wanted.clock
    )
    control = closing.enter_context(_listen("--control-port", wanted.control_port))
    listeners = _listen_to_both(wanted, declaration.host_name(vm), control, closing)
    with held_back():
        write_ready = closing.enter_context(ready_file(wanted.ready_file))
    ended_with = ExitCode.FAILED.value
    refusal: CommandError | None = None

    async def errand() -> None:
        nonlocal ended_with, refusal
        variables = _variables(wanted, listeners, folder)
        try:
            write_ready(variables)
        except CommandError as error:
            refusal = error
            return
        _say_where(wanted, vm, variables)
        if wanted.command:
            ended_with = await run_to_the_end(wanted.command, variables, signals)
        else:
            await until_stopped(signals)
            ended_with = ExitCode.OK.value

    _serve(settings, listeners, errand, wanted)
    if refusal is not None:
        raise refusal
    return ended_with


def _check(wanted: Emulation) -> None:
    """Refuse what cannot be a virtual machine, and a way that cannot be had here."""
    problem = ""
    if wanted.fleet is not None and len(wanted.vms) > 1:
        problem = (
            "With --fleet, give --vm at most once: the virtual machine that the program runs on."
        )
    elif wanted.netns and wanted.port is not None:
        problem = (
            f"--port cannot be used with --netns, where the endpoint is {METADATA_ADDRESS}:80."
        )
    elif wanted.netns and not wanted.command:
        problem = "--netns needs a program: nothing else can reach its network."
    if problem:
        raise CommandError(problem, code=ExitCode.USAGE)
    if wanted.netns and sys.platform != "linux":
        raise CommandError("--netns needs Linux.", code=ExitCode.USAGE)
    for vm in wanted.vms:
        try:
            check_name(vm, "virtual machine")
        except InvalidNameError as error:
            raise CommandError(f"--vm: {error}", code=ExitCode.USAGE) from error


def _declare(wanted: Emulation, folder: Path) -> "FleetDeclaration":
    """Return the fleet, read and checked before this process may leave its network."""
    from forewarn.bootstrap.start import read_declaration  # noqa: PLC0415 - the server install
    from forewarn.files.fleet import standalone_vms, write_fleet_file  # noqa: PLC0415

    path = wanted.fleet
    if path is None:
        path = folder / _FLEET
        content = standalone_vms(*(wanted.vms or [_ONLY_VM]))
        path.write_text(write_fleet_file(content), encoding="utf-8")
    declaration = read_declaration(path)
    declaration.check()
    return declaration


def _choose_vm(wanted: Emulation, declaration: "FleetDeclaration") -> str:
    declared = [each.vm.name for each in declaration.fleet.virtual_machines]
    if not declared:
        problem = f"--fleet: {declaration.path} defines no virtual machine."
        raise CommandError(problem, code=ExitCode.USAGE)
    vm = (wanted.vms or declared)[0]
    if name_key(vm) not in map(name_key, declared):
        problem = f"--vm: {declaration.path} does not define the virtual machine {vm!r}."
        raise CommandError(problem, code=ExitCode.USAGE)
    return vm


def _listen_to_both(
    wanted: Emulation, host_name: str, control: socket.socket, closing: ExitStack
) -> "Listeners":
    from forewarn.bootstrap.listening import Listeners  # noqa: PLC0415
    from forewarn.metadata.http import open_listener  # noqa: PLC0415

    if not wanted.netns:
        metadata = closing.enter_context(_listen("--port", wanted.port))
        return Listeners(metadata=(metadata,), control=(control,))
    from forewarn.emulator.netns import enter_network_namespace  # noqa: PLC0415 - only on Linux

    enter_network_namespace(host_name)
    inside = closing.enter_context(open_listener(LOCALHOST, _port_of(control)))
    metadata = closing.enter_context(open_listener(METADATA_ADDRESS, 80))
    return Listeners(metadata=(metadata,), control=(control, inside))


def _listen(flag: str, port: int | None) -> socket.socket:
    from forewarn.metadata.http import open_listener  # noqa: PLC0415 - needs the server install

    try:
        return open_listener(LOCALHOST, port or 0)
    except OSError as error:
        reason = os.strerror(error.errno or 0)  # its own words repeat the address
        message = f"{flag}: cannot listen on {LOCALHOST}:{port}: {reason}."
        hint = f"try: omit {flag} to use a free port"
        raise CommandError(message, code=ExitCode.FAILED, hint=hint) from error


def _port_of(listener: socket.socket) -> int:
    port: int = listener.getsockname()[1]
    return port


def _variables(wanted: Emulation, listeners: "Listeners", folder: Path) -> dict[str, str]:
    """Return what programs of any kind need to find the server, inside and outside alike."""
    url = f"http://{LOCALHOST}:{_port_of(listeners.metadata[0])}"
    return {
        **endpoint_variables(f"http://{METADATA_ADDRESS}" if wanted.netns else url),
        "FOREWARN_SERVER": f"http://{LOCALHOST}:{_port_of(listeners.control[0])}",
        "FOREWARN_STATE_DIR": str(folder),
        _TOKEN: (folder / ADMIN_TOKEN_FILE).read_text(encoding="ascii").strip(),
    }


def _say_where(wanted: Emulation, vm: str, variables: Mapping[str, str]) -> None:
    """Say where everything is, and what can be tried where it has an effect."""
    url = variables["FOREWARN_METADATA_URL"]
    attempt = "" if wanted.around else f"{own_command()} vm restart {vm}"
    shown = {name: shlex.quote(value) for name, value in variables.items() if name != _TOKEN}
    if not wanted.command:
        print_line(f"{url} is ready for {vm}, until Ctrl-C. In another terminal:")
        for name, value in shown.items():
            print_line(f"  export {name}={value}")
        if attempt:
            print_line(f"  {attempt}")
        return
    print_line(f"forewarn: {url} is ready for {vm}.", err=True)
    if attempt:
        words = (f"{name}={shown[name]}" for name in ("FOREWARN_SERVER", "FOREWARN_STATE_DIR"))
        print_line(f"  in another terminal: {' '.join(words)} {attempt}", err=True)


def _serve(
    settings: "Settings", listeners: "Listeners", errand: Callable[[], Any], wanted: Emulation
) -> None:
    from forewarn.bootstrap.emulated import with_any_vm  # noqa: PLC0415
    from forewarn.bootstrap.server import serve_during  # noqa: PLC0415

    around = wanted.around
    if around is None and wanted.fleet is None:
        around = with_any_vm
    serve_during(settings, listeners, errand, around or (lambda _, app: app))
