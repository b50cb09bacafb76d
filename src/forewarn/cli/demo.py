"""`forewarn demo`: a running service, a fleet that answers, and a roll-out through its hosts."""

import shlex
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
from forewarn.settings_table import ExecutorKind

_FLEET: Final = "fleet.toml"

app = alone()


@app.command("demo")
def demo(
    *,
    speed: Annotated[float, speed_option("notice, drain and impact")] = 120,
    keep: Annotated[Path | None, option("DIR", "Directory for database, fleet and token.")] = None,
) -> None:
    """Watch a roll-out go through a fleet that polls, drains and approves.

    Sixteen simulated virtual machines on four hosts poll a real service with the SDK.
    Users send requests to two services on them: one drains on notice, one does not.
    On a terminal, the demo keeps running until Ctrl-C, so that you can try commands;
    otherwise it ends with the roll-out. It leaves only the --keep directory behind.

    Example: forewarn demo --speed 60
    """
    with stop_signals() as signals, reported_errors("demo"), ExitStack() as closing:
        with suppress(KeyboardInterrupt):  # before the service runs; then it is no exception
            _perform(_make_folder(keep, closing), speed, closing, signals)
        if keep is not None and (keep / DATABASE).exists():
            print_line(f"Kept in {keep}. Serve it again:")
            files = "--database", f"sqlite:///{keep / DATABASE}", "--fleet", str(keep / _FLEET)
            flags = f"--executor {ExecutorKind.SIMULATED} --speed {speed:g} --trust-path"
            print_line(f"  {own_command()} serve {shlex.join(files)} {flags}")


def _make_folder(keep: Path | None, closing: ExitStack) -> Path:
    if keep is None:
        return make_folder("forewarn-demo-", closing)
    from forewarn.cli.demonstration.fleet import fleet_file  # noqa: PLC0415 - slow to load

    fleet = keep / _FLEET
    hint = "try: --keep with a new folder"
    try:
        keep.mkdir(parents=True, exist_ok=True)
        is_ours = not fleet.exists() or fleet.read_text(encoding="utf-8") == fleet_file()
    except (OSError, UnicodeDecodeError) as error:
        problem = error.strerror if isinstance(error, OSError) else "it is not text"
        message = f"Cannot keep the demo in '{keep}': {problem}."
        raise CommandError(message, code=ExitCode.FAILED, hint=hint) from error
    if not is_ours:
        message = f"'{fleet}' is not the fleet of the demo."
        raise CommandError(message, code=ExitCode.REFUSED, hint=hint)
    return keep


def _perform(folder: Path, speed: float, closing: ExitStack, signals: StopSignals) -> None:
    print_line("Starting a service and its fleet ...")
    import asyncio  # noqa: PLC0415 - slow to load

    from forewarn.bootstrap.listening import Listeners  # noqa: PLC0415
    from forewarn.bootstrap.server import serve_during  # noqa: PLC0415 - needs the server install
    from forewarn.cli.demonstration.audience import Audience  # noqa: PLC0415
    from forewarn.cli.demonstration.fleet import fleet_file  # noqa: PLC0415
    from forewarn.cli.demonstration.performance import DemoRun  # noqa: PLC0415 - slow to load

    (folder / _FLEET).write_text(fleet_file(), encoding="utf-8")
    ports = METADATA_PORT, CONTROL_PORT
    metadata, control = (closing.enter_context(listen_locally(port)) for port in ports)
    audience = Audience()
    refusals: list[Exception] = []

    async def errand() -> None:
        urls = [f"http://{LOCALHOST}:{each.getsockname()[1]}" for each in (metadata, control)]
        performance = DemoRun(urls, folder, audience, speed)
        try:
            async with asyncio.TaskGroup() as group:
                performing = group.create_task(performance.give())
                signals.hand_to(lambda _: performing.cancel())
        except* CommandError as errors:
            refusals.extend(errors.exceptions)
        except* OSError:
            audience.has_left()

    with audience:
        listeners = Listeners(metadata=(metadata,), control=(control,))
        serve_during(own_settings(folder, folder / _FLEET, speed), listeners, errand)
    for refusal in refusals:
        raise refusal
