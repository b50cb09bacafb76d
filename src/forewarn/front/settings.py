"""What a relay can be set to: flag > environment (FOREWARN_…) > a file > default.

It costs little to import, in a process that has to stay small.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Final, Self

from forewarn.environment import SettingsError, read_settings_file, read_variables
from forewarn.front.server_urls import check_server
from forewarn.settings_table import LogFormat, LogLevel, Setting
from forewarn.wording.addresses import parse_address

RELAY_SETTINGS: Final[Mapping[str, Setting]] = {
    "server": Setting("URL of the server's control API.", metavar="URL"),
    "token_file": Setting("File with the relay's token.", metavar="FILE", kind=Path),
    "ca_file": Setting("CA certificates to trust (PEM file).", metavar="FILE", kind=Path),
    "insecure_control": Setting(
        "Send the token without TLS, over an encrypted network.", default=False, kind=bool
    ),
    "metadata": Setting(
        "Address that VMs poll: HOST:PORT or unix:PATH.",
        ("169.254.169.254:80",),
        "HOST:PORT",
    ),
    "interface": Setting("Only serve requests that arrive on this interface.", (), "NAME"),
    "state_dir": Setting("Directory for a copy of the feed.", ".", "DIR", Path),
    "log_format": Setting("Format of log lines.", LogFormat.CONSOLE, kind=LogFormat),
    "log_level": Setting("Minimum level of log lines.", LogLevel.INFO, kind=LogLevel),
}
"""By name, in the order of the help."""
_LISTS: Final = frozenset({"metadata", "interface"})
_YES: Final = frozenset({"1", "on", "true", "yes"})


@dataclass(frozen=True, slots=True, kw_only=True)
class RelaySettings:
    """Where the server is, what the relay shows it, and where virtual machines poll."""

    server: str
    token_file: Path
    metadata: tuple[str, ...]
    interface: tuple[str, ...]
    ca_file: Path | None
    insecure_control: bool
    state_dir: Path
    log_format: LogFormat
    log_level: LogLevel

    def encode(self) -> str:
        """Return them as one word of a command line; there is no secret in them."""
        return json.dumps(asdict(self), default=str)

    @classmethod
    def decode(cls, word: str) -> Self:
        """Return what `encode` has encoded."""
        return cls(**_typed(json.loads(word)))


def load_relay_settings(flags: Mapping[str, Any], config: Path | None) -> RelaySettings:
    """Return the settings from *flags*, the environment and *config*, or refuse in one sentence."""
    file = {} if config is None else read_settings_file(config)
    for key in file:
        if key not in RELAY_SETTINGS:
            raise SettingsError(f"{config}: unknown setting {key!r}.", key)
    defaults = {name: setting.default for name, setting in RELAY_SETTINGS.items()}
    given = {**defaults, **file, **read_variables(RELAY_SETTINGS), **flags}
    for name in ("server", "token_file"):
        if not given[name]:
            raise SettingsError(f"The setting {name} is required.", name)
    try:
        settings = RelaySettings(**_typed(given))
    except (ValueError, TypeError) as error:
        raise SettingsError(f"{error}.") from error
    check_server(settings.server, insecure_control=settings.insecure_control)
    _check_listeners(settings)
    return settings


def _typed(given: Mapping[str, Any]) -> dict[str, Any]:
    known = {field.name: given[field.name] for field in fields(RelaySettings)}
    for name in _LISTS:
        known[name] = tuple(_split(known[name]))
    for name in ("token_file", "ca_file", "state_dir"):
        known[name] = None if known[name] is None else Path(known[name])
    known["insecure_control"] = str(known["insecure_control"]).lower() in _YES
    known["log_format"] = LogFormat(known["log_format"])
    known["log_level"] = LogLevel(known["log_level"])
    return known


def _split(value: str | Iterable[str]) -> Iterable[str]:
    """Read a list from one line, as the environment has it."""
    if isinstance(value, str):
        return (part.strip() for part in value.split(",") if part.strip())
    return value


def _check_listeners(settings: RelaySettings) -> None:
    if not settings.metadata:
        raise SettingsError("The setting metadata is empty; use HOST:PORT.", "metadata")
    for address in settings.metadata:
        try:
            where = parse_address(address)
        except ValueError as error:
            raise SettingsError(f"Invalid setting metadata: {error}.", "metadata") from error
        if settings.interface and not hasattr(where, "host"):
            raise SettingsError(
                f"The unix socket {address!r} cannot be bound to an interface; remove one of them.",
                "interface",
            )
