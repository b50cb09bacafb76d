"""`forewarn demo`: a running service, a fleet that answers, and a roll-out through its hosts."""

import shlex
import socket
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Annotated, Final

from forewarn.cli.catalogue import alone
from forewarn.cli.errors import CommandError, ExitCode, reported_errors
from forewarn.cli.options import option, speed_option
from forewarn.cli.output import print_line
from forewarn.cli.own_server import (
    CONTROL_PORT,
    DATABASE,
    LOCALHOST,
    METADATA_PORT,
    listen_locally,
    make_folder,
    own_command,
    own_settings,
)
from forewarn.cli.signals import StopSignals, stop_signals
from forewarn.environment import ADMIN_TOKEN_FILE
from forewarn.settings_table import ExecutorKind

_FLEET: Final = "fleet.toml"

app = alone()


@app.command("demo")
def demo(
    *,
    speed: Annotated[float, speed_option("notice, drain and impact")] = 60,
    keep: Annotated[Path | None, option("DIR", "Directory for database, fleet and token.")] = None,
) -> None:
    """Watch a roll-out go through a fleet that polls, drains and approves.

    Sixteen simulated virtual machines on four hosts poll a real service with the SDK,
    each in its own way: quick, slow, only as the leader, never. It prints a link to the
    web console. On a terminal it stays until Ctrl-C, for you to look around and to try
    commands on it; else it ends with the roll-out. Either way it exits with 0 (128 + the
    signal if stopped before it began), and leaves nothing behind but what --keep names.

    Example: forewarn demo --speed 60
    """
    with stop_signals() as signals, reported_errors("demo"), ExitStack() as closing:
        with suppress(KeyboardInterrupt):  # before the service runs; then it is no exception
            _perform(_make_folder(keep, closing), speed, closing, signals)
        if keep is not None and (keep / DATABASE).exists():
            print_line(f"Kept in {keep}. Serve it again:")
            files = shlex.join(
                ["--database", f"sqlite:///{keep / DATABASE}", "--fleet", str(keep / _FLEET)]
            )
            flags = f"{files} --executor {ExecutorKind.SIMULATED} --speed {speed:g} --trust-path"
            print_line(f"  {own_command()} serve {flags}")


def _make_folder(keep: Path | None, closing: ExitStack) -> Path:
    if keep is None:
        return make_folder("forewarn-demo-", closing)
    from forewarn.cli.demonstration.fleet import fleet_file  # noqa: PLC0415 - slow to load

    fleet = keep / _FLEET
    try:
        keep.mkdir(parents=True, exist_ok=True)
        is_ours = not fleet.exists() or fleet.read_text(encoding="utf-8") == fleet_file()
    except (OSError, UnicodeDecodeError) as error:
        problem = error.strerror if isinstance(error, OSError) else "it is not text"
        message = f"Nothing can be kept in {keep}: {problem}."
        hint = "try: --keep with a new folder"
        raise CommandError(message, code=ExitCode.FAILED, hint=hint) from error
    if not is_ours:
        message = f"{fleet} is not the fleet of the demo."
        raise CommandError(message, code=ExitCode.REFUSED, hint="try: --keep with a new folder")
    return keep


def _perform(folder: Path, speed: float, closing: ExitStack, signals: StopSignals) -> None:
    print_line("Starting a service and its fleet ...")
    from forewarn.bootstrap.listening import Listeners  # noqa: PLC0415
    from forewarn.bootstrap.server import serve_during  # noqa: PLC0415 - needs the server install
    from forewarn.cli.demonstration.audience import Audience  # noqa: PLC0415
    from forewarn.cli.demonstration.fleet import fleet_file  # noqa: PLC0415
    from forewarn.cli.demonstration.performance import (  # noqa: PLC0415 - only the demo pays for it
        DemoStage,
        perform_until_interrupted,
    )

    (folder / _FLEET).write_text(fleet_file(), encoding="utf-8")
    metadata, control = (
        closing.enter_context(listen_locally(port)) for port in (METADATA_PORT, CONTROL_PORT)
    )
    audience = Audience()
    refusals: list[Exception] = []

    async def errand() -> None:
        stage = DemoStage(
            metadata=_url(metadata),
            control=_url(control),
            token=(folder / ADMIN_TOKEN_FILE).read_text(encoding="ascii").strip(),
            speed=speed,
            suggestions=tuple(_suggest(_url(control), folder)),
        )
        try:
            await perform_until_interrupted(stage, audience, signals)
        except* CommandError as group:
            refusals.extend(group.exceptions)
        except* OSError:
            audience.has_left()

    with audience:
        listeners = Listeners(metadata=(metadata,), control=(control,))
        serve_during(own_settings(folder, folder / _FLEET, speed), listeners, errand)
    for refusal in refusals:
        raise refusal


def _url(listener: socket.socket) -> str:
    return f"http://{LOCALHOST}:{listener.getsockname()[1]}"


def _suggest(control: str, folder: Path) -> Iterator[str]:
    """Say what to type in another terminal, so that it works there as it stands."""
    yield "Your turn, in another terminal:"
    yield f"  export FOREWARN_SERVER={control}"
    yield f"  export FOREWARN_STATE_DIR={shlex.quote(str(folder.absolute()))}"
    yield f"  {own_command()} vm restart web-0; {own_command()} event list"
    yield f"  {own_command()} scenario run live-migration --vm db --speed 60"
