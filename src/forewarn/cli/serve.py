"""`forewarn serve`: the service. Its flags are the settings."""

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Final, get_args, get_origin

import typer
from pydantic.fields import FieldInfo

from forewarn.cli.catalogue import alone
from forewarn.cli.errors import reported_errors
from forewarn.cli.starting import detach, marked_as_starting
from forewarn.settings import Settings, load_settings

_WITHOUT_FLAG: Final = {"proxy_secret"}
"""Secrets do not belong on a command line, where every user of the machine can read them."""
_METAVARS: Final = {
    "database": "FILE",
    "metadata": "HOST:PORT",
    "metadata_socket_mode": "MODE",
    "control": "HOST:PORT",
    "control_host": "NAME",
    "control_certificate": "FILE",
    "control_key": "FILE",
    "fleet": "FILE",
    "speed": "N",
    "executor_file": "FILE",
    "default_vm": "NAME",
    "state_dir": "DIR",
    "user_initiated_limit": "N",
    "document_retention": "DURATION",
    "trusted_proxies": "ADDRESS",
    "notifications": "FILE",
    "overdue_after": "DURATION",
    "gates": "FILE",
}


def serve(
    *,
    is_detached: Annotated[
        bool, typer.Option("--detach", help="Return when ready, and keep running.")
    ] = False,
    config: Path | None = None,
    **flags: object,
) -> None:
    """Serve virtual machines and operators until stopped.

    Each flag is also a variable (--state-dir: FOREWARN_STATE_DIR) and a key of
    forewarn.toml (state_dir); a flag wins over a variable, a variable over the file.
    With --detach the log is server.log in the state directory.

    Example: forewarn serve --fleet fleet.toml --executor simulated
    """
    with reported_errors():
        settings = load_settings(given(flags), config)
        if is_detached:
            detach(settings.state_directory, lambda tell: _run(settings, tell))
        else:
            _run(settings, lambda: None)


def _run(settings: Settings, tell: Callable[[], None]) -> None:
    """Run a server, and *tell* when it is ready."""
    with marked_as_starting(settings.state_directory) as remove_mark:
        from forewarn.bootstrap.serving import serve as run  # noqa: PLC0415 - needs the server install

        def ready() -> None:
            remove_mark()
            tell()

        run(settings, ready)


def given(flags: Mapping[str, object]) -> dict[str, object]:
    """Return those of *flags* that were given."""
    # What can be repeated is an empty list, not None, when it is not.
    return {name: flag for name, flag in flags.items() if flag not in (None, [])}


def take_flags(command: Callable[..., None]) -> None:
    """Have *command*, which has `config` and `**flags`, take the flags of the server."""
    own = inspect.signature(command).parameters.values()
    others = [each for each in own if each.name != "config" and each.kind is not each.VAR_KEYWORD]
    command.__dict__["__signature__"] = inspect.Signature([*others, *_FLAGS])


def _flag(name: str, field: FieldInfo) -> inspect.Parameter:
    option = typer.Option(
        f"--{name.replace('_', '-')}{_negation(name, field)}",
        help=f"{field.description}{_default(field)}",
        metavar=_METAVARS.get(name),
        show_default=False,
    )
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[_flag_type(field.annotation), option],
    )


def _flag_type(annotation: Any) -> Any:
    """Return what typer reads for a setting of the type *annotation*."""
    if get_origin(annotation) is tuple:
        return list[str] | None
    kinds = get_args(annotation) if isinstance(annotation, UnionType) else (annotation,)
    (kind,) = (kind for kind in kinds if kind is not NoneType)
    return kind | None


def _negation(name: str, field: FieldInfo) -> str:
    return f"/--no-{name.replace('_', '-')}" if field.annotation is bool else ""


def _default(field: FieldInfo) -> str:
    match field.default:
        case None | () | bool():
            return ""
        case tuple(default):
            return f" [{','.join(default)}]"
        case default:
            return f" [{default}]"


_CONFIG: Final = inspect.Parameter(
    "config",
    inspect.Parameter.KEYWORD_ONLY,
    default=None,
    annotation=Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Settings file (default: forewarn.toml, if it exists)."),
    ],
)
_FLAGS: Final = (
    *(
        _flag(name, field)
        for name, field in Settings.model_fields.items()
        if name not in _WITHOUT_FLAG
    ),
    _CONFIG,
)
take_flags(serve)
app = alone()
app.command("serve")(serve)
