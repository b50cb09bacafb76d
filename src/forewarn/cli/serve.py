"""`forewarn serve`: the service. Its flags are the settings."""

import gc
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from forewarn.cli.catalogue import alone
from forewarn.cli.errors import reported_errors
from forewarn.cli.options import keyword, option, switch
from forewarn.cli.output import print_line
from forewarn.cli.server_start import detach, marked_as_starting
from forewarn.cli.times import DURATION, check_duration
from forewarn.settings_table import SETTINGS, Setting
from forewarn.wording.database_urls import has_password

if TYPE_CHECKING:
    from forewarn.settings import Settings


def serve(
    *,
    is_detached: Annotated[
        bool, switch("Return when ready; the server keeps running.", "--detach")
    ] = False,
    config: Path | None = None,
    **flags: object,
) -> None:
    """Run the server until stopped.

    Each flag is also an environment variable (--state-dir: FOREWARN_STATE_DIR) and a key
    in forewarn.toml (state_dir). Flags override variables, and variables override the
    file. With --detach, the log is server.log in the state directory.

    Example: forewarn serve --fleet fleet.toml --executor simulated
    """
    with reported_errors():
        from forewarn.settings import load_settings  # noqa: PLC0415 - slow to load

        warn_of_password(flags["database"])
        settings = load_settings(given(flags), config)
        if is_detached:
            detach(settings.state_directory, lambda tell: _run(settings, tell))
        else:
            _run(settings, lambda: None)


def _run(settings: "Settings", tell: Callable[[], None]) -> None:
    """Run a server, and *tell* when it is ready."""
    with marked_as_starting(settings.state_directory) as remove_mark:
        gc.disable()  # what is loaded is never garbage: a seventh of the start was to look for some
        from forewarn.bootstrap.server import serve as run  # noqa: PLC0415 - needs the server install

        gc.freeze()
        gc.enable()

        def ready() -> None:
            remove_mark()
            tell()

        run(settings, ready)


def warn_of_password(database: object) -> None:
    """Say so if there is a password in *database*, which was given on the command line."""
    if isinstance(database, str) and has_password(database):
        print_line(
            "forewarn: All users on this machine can read the password on the command line.",
            err=True,
        )
        print_line(
            "  use FOREWARN_DATABASE, forewarn.toml with mode 0600, PGPASSFILE or PGSERVICE",
            err=True,
        )


def given(flags: Mapping[str, object]) -> dict[str, object]:
    """Return those of *flags* that were given."""
    # What can be repeated is an empty list, not None, when it is not.
    return {name: flag for name, flag in flags.items() if flag not in (None, [])}


def take_flags(command: Callable[..., None]) -> None:
    """Have *command*, which has `config` and `**flags`, take the flags of the server."""
    own = inspect.signature(command).parameters.values()
    others = [each for each in own if each.name != "config" and each.kind is not each.VAR_KEYWORD]
    command.__dict__["__signature__"] = inspect.Signature([*others, *_FLAGS])


def flags_of(settings: Mapping[str, Setting]) -> tuple[inspect.Parameter, ...]:
    """Return the flags of *settings*.

    Secrets do not belong on a command line, where every user of the machine can read them.
    """
    return tuple(_flag(name, each) for name, each in settings.items() if not each.is_secret)


def _flag(name: str, setting: Setting) -> inspect.Parameter:
    flag = f"--{name.replace('_', '-')}"
    declared = typer.Option(
        f"{flag}/--no-{flag.removeprefix('--')}" if setting.kind is bool else flag,
        help=f"{setting.summary}{_say_default(setting)}",
        metavar=setting.metavar,
        show_default=False,
        callback=check_duration if setting.metavar == DURATION else None,
    )
    kind: Any = list[str] if isinstance(setting.default, tuple) else setting.kind
    return keyword(name, Annotated[kind | None, declared])


def _say_default(setting: Setting) -> str:
    match setting.default:
        case None | () | bool():
            return ""
        case tuple(default):
            return f" [{','.join(default)}]"
        case default:
            return f" [{default}]"


_CONFIG: Final = option("FILE", "Settings file (default: forewarn.toml, if it exists).")
_FLAGS: Final = (*flags_of(SETTINGS), keyword("config", Annotated[Path | None, _CONFIG]))
take_flags(serve)
app = alone()
app.command("serve")(serve)
