"""`forewarn config`: what is set, and where that is from."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from forewarn.cli.catalogue import noun
from forewarn.cli.errors import reported_errors
from forewarn.cli.options import switch
from forewarn.cli.output import Columns, Output, OutputOption, Row, print_answer, table_of
from forewarn.cli.serve import given, take_flags, warn_of_password
from forewarn.cli.settings import (
    CliSettings,
    find_control_url,
    load_cli_settings,
    read_cli_variables,
)
from forewarn.environment import CONFIG_FILE
from forewarn.settings_table import SETTINGS, SettingOrigin
from forewarn.wording.database_urls import MASK, hide_passwords

if TYPE_CHECKING:
    from forewarn.settings import Settings

app = noun("config")

_COLUMNS: Final[Columns] = {
    "setting": "name",
    "value": "value",
    "from": lambda row: f"{row['origin']} {row['place']}".rstrip(),
    "used by": "used_by",
}


def show(
    *,
    effective: Annotated[
        bool, switch("Include settings with default values.", "--effective")
    ] = False,
    output: OutputOption = Output.TABLE,
    config: Path | None = None,
    **flags: object,
) -> None:
    """Show each setting and where it comes from; secrets are masked.

    Settings come from forewarn.toml, variables FOREWARN_… and flags. The command takes
    the flags of serve, and shows what a server would start with.

    Example: forewarn config show --effective
    """
    with reported_errors("config show"):
        warn_of_password(flags["database"])
        views = (*_of_server(given(flags), config), *_of_commands())
        shown = [view for view in views if effective or view["origin"] != SettingOrigin.DEFAULT]
        print_answer({"settings": shown}, output, table_of("settings", _COLUMNS))


def _of_server(flags: dict[str, object], config: Path | None) -> Iterator[Row]:
    from forewarn.settings import find_origins, load_settings  # noqa: PLC0415 - slow to load

    settings = load_settings(flags, config)
    for name, origin in find_origins(flags, config).items():
        place = _place(name, origin, config or CONFIG_FILE)
        yield _view(name, _plain(settings, name), origin, place, "serve")


def _of_commands() -> Iterator[Row]:
    settings = load_cli_settings()
    token = settings.find_token(settings.server)
    values = {
        "server": settings.server,
        "token": None if token is None else MASK,
        "ca_file": settings.ca_file and str(settings.ca_file),
    }
    for name, (origin, known_as) in _find_origins(settings).items():
        file = settings.token_file if name == "token" else CONFIG_FILE
        if name == "server" and find_control_url(settings.control_url_file):
            file = settings.control_url_file
        yield _view(name, values[name], origin, _place(known_as, origin, file), "commands")


def _find_origins(settings: CliSettings) -> dict[str, tuple[SettingOrigin, str]]:
    """Return where what only commands need is from, and by which name."""
    from forewarn.settings import find_origins  # noqa: PLC0415 - slow to load

    has_token_file = settings.find_token(settings.server) is not None
    is_left = find_control_url(settings.control_url_file) is not None
    found = {
        "server": (SettingOrigin.FILE if is_left else find_origins({})["control"], "control"),
        "token": (SettingOrigin.FILE if has_token_file else SettingOrigin.DEFAULT, "token"),
        "ca_file": (SettingOrigin.DEFAULT, "ca_file"),
    }
    given = read_cli_variables()
    return found | {name: (SettingOrigin.ENVIRONMENT, name) for name in found if name in given}


def _view(name: str, value: object, origin: str, place: str, used_by: str) -> Row:
    """Return a setting as it takes effect; *place* is the flag, variable or file it is from."""
    return {
        "name": name,
        "value": value,
        "origin": str(origin),
        "place": place,
        "used_by": used_by,
    }


def _plain(settings: "Settings", name: str) -> object:
    value = settings.model_dump(mode="json")[name]
    if SETTINGS[name].is_url:
        return hide_passwords(value)
    return MASK if SETTINGS[name].is_secret and value is not None else value


def _place(name: str, origin: SettingOrigin, file: Path) -> str:
    places = {
        SettingOrigin.FLAG: f"--{name.replace('_', '-')}",
        SettingOrigin.ENVIRONMENT: f"FOREWARN_{name.upper()}",
        SettingOrigin.FILE: str(file),
        SettingOrigin.DEFAULT: "",
    }
    return places[origin]


take_flags(show)
app.command("show")(show)
