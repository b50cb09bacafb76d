"""What the operator has set: flag > environment (FOREWARN_…) > forewarn.toml > default.

Only this module and `environment` read the environment. Everything else is handed the values it
needs.
"""

import os
import re
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Final, Self, TypeVar

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError, model_validator
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from forewarn.domain.limits import FASTEST
from forewarn.domain.notice import NoticeMode
from forewarn.environment import (
    CONFIG_FILE,
    POSTGRESQL,
    PREFIX,
    SQLITE,
    SettingsError,
    read_settings_file,
)
from forewarn.settings_table import (
    SETTINGS,
    ClockKind,
    ExecutorKind,
    LogFormat,
    LogLevel,
    SettingOrigin,
)
from forewarn.wording.addresses import (
    UnixAddress,
    check_host_name,
    check_mode,
    check_network,
    parse_address,
)
from forewarn.wording.database_urls import has_password, hide_passwords, is_postgres_url
from forewarn.wording.durations import DurationError, parse_duration
from forewarn.wording.invalid_values import say_invalid

T = TypeVar("T")

_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")
"""How a URL begins; one letter alone is a drive."""
_LONGEST_DURATION: Final = timedelta(days=3660)
_SHORTEST_HISTORY: Final = timedelta(days=1)


def _check_listener(text: str) -> str:
    parse_address(text)
    return text


def _check_control(text: str) -> str:
    if isinstance(parse_address(text), UnixAddress):
        raise ValueError("the control API can only listen on HOST:PORT or [::1]:PORT")  # noqa: TRY004
    return text


def _check_database(url: str) -> str:
    # What is malformed is not repeated: there may be a password in it.
    if url.startswith((POSTGRESQL, "postgres://")):
        url = f"{POSTGRESQL}{url.partition('://')[2]}"
        if not is_postgres_url(url):
            raise ValueError(
                "not a valid PostgreSQL URL; use postgresql://USER:PASSWORD@HOST/DB, and encode "
                "special characters: @ as %40, : as %3A, / as %2F"
            )
        return url
    if url and _SCHEME.match(url) is None:
        url = f"{SQLITE}{url}"
    path = url.removeprefix(SQLITE)
    if path in {"", url} or has_password(path):
        raise ValueError(
            "not a valid database URL; use PATH, sqlite:///PATH or postgresql://HOST/DB"
        )
    return url


def _check_duration(text: str) -> str:
    try:
        duration = parse_duration(text)
    except DurationError as error:
        raise ValueError(str(error)) from None
    if duration > _LONGEST_DURATION:
        raise ValueError(f"{text!r} is too long; the maximum is {_LONGEST_DURATION.days} days")
    return text


def _split(value: object) -> object:
    """Read a list from one line, as the environment has it."""
    if isinstance(value, str):
        return [part.strip() for part in value.split(",") if part.strip()]
    return value


_Listener = Annotated[str, AfterValidator(_check_listener)]
_Mode = Annotated[str, AfterValidator(check_mode)]
_HostName = Annotated[str, AfterValidator(check_host_name)]
_Network = Annotated[str, AfterValidator(check_network)]
_Length = Annotated[str, AfterValidator(_check_duration)]
_Several = Annotated[tuple[T, ...], NoDecode, BeforeValidator(_split)]


def _setting(name: str, **bounds: Any) -> Any:
    described = SETTINGS[name]
    return Field(
        default=described.default,
        description=described.summary,
        repr=not (described.is_secret or described.is_url),
        **bounds,
    )


class Settings(BaseSettings):
    """Everything that can be set. Made by `load_settings`, or by `make_settings` from values alone.

    Each field is a flag of `forewarn serve` with this help, a variable FOREWARN_… and a key of
    forewarn.toml.
    """

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        frozen=True,
        extra="forbid",
        validate_default=True,
        hide_input_in_errors=True,
    )

    database: Annotated[str, AfterValidator(_check_database)] = _setting("database")
    metadata: _Several[_Listener] = _setting("metadata", min_length=1)
    metadata_socket_mode: _Mode = _setting("metadata_socket_mode")
    control: Annotated[str, AfterValidator(_check_control)] = _setting("control")
    control_host: _Several[_HostName] = _setting("control_host")
    control_certificate: Path | None = _setting("control_certificate")
    control_key: Path | None = _setting("control_key")
    insecure_control: bool = _setting("insecure_control")
    fleet: Path | None = _setting("fleet")
    clock: ClockKind = _setting("clock")
    speed: float = _setting("speed", ge=1, le=FASTEST, allow_inf_nan=False)
    executor: ExecutorKind = _setting("executor")
    executor_file: Path | None = _setting("executor_file")
    discovery_file: Path | None = _setting("discovery_file")
    paused: bool = _setting("paused")
    notice: NoticeMode = _setting("notice")
    default_vm: str | None = _setting("default_vm")
    trust_path: bool = _setting("trust_path")
    state_dir: Path | None = _setting("state_dir")
    user_initiated_limit: int = _setting("user_initiated_limit", ge=1)
    document_retention: _Length = _setting("document_retention")
    history_retention: Annotated[
        str | None, AfterValidator(lambda text: text and _check_duration(text))
    ] = _setting("history_retention")
    proxy_secret: str | None = _setting("proxy_secret", min_length=1)
    trusted_proxies: _Several[_Network] = _setting("trusted_proxies")
    notifications: Path | None = _setting("notifications")
    overdue_after: _Length = _setting("overdue_after")
    owner_grace: _Length = _setting("owner_grace")
    clock_tolerance: _Length = _setting("clock_tolerance")
    gates: Path | None = _setting("gates")
    migrate: bool = _setting("migrate")
    journal: bool = _setting("journal")
    log_format: LogFormat = _setting("log_format")
    log_level: LogLevel = _setting("log_level")

    @property
    def database_path(self) -> Path:
        """The SQLite file."""
        return Path(self.database.removeprefix(SQLITE))

    @property
    def location(self) -> Path | str:
        """The SQLite file, or the URL of the PostgreSQL database."""
        return self.database if self.is_shared else self.database_path

    @property
    def database_name(self) -> str:
        """How people know the database: its file, or its URL without a password."""
        return hide_passwords(self.database) if self.is_shared else str(self.database_path)

    @property
    def is_shared(self) -> bool:
        """Whether other replicas may be on the same database."""
        return self.database.startswith(POSTGRESQL)

    @property
    def socket_mode(self) -> int:
        """The mode of unix sockets that virtual machines poll."""
        return int(self.metadata_socket_mode, 8)

    @property
    def longest_delay(self) -> timedelta:
        """How much longer than announced an event may take."""
        return parse_duration(self.overdue_after)

    @property
    def state_directory(self) -> Path:
        """Where the admin token and what executors remember are kept."""
        return self.state_dir or (Path() if self.is_shared else self.database_path.parent)

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        if self.clock is ClockKind.VIRTUAL and self.speed != 1:
            raise ValueError("The setting speed cannot be used with the virtual clock.")
        if self.clock is ClockKind.VIRTUAL and self.is_shared:
            raise ValueError("The virtual clock needs a SQLite database, not PostgreSQL.")
        if self.journal and self.is_shared:
            raise ValueError("The setting journal needs a SQLite database, not PostgreSQL.")
        if self.executor_file is not None and os.name == "nt":
            raise ValueError("The setting executor_file cannot be used on Windows.")
        if self.discovery_file is not None and os.name == "nt":
            raise ValueError("The setting discovery_file cannot be used on Windows.")
        if self.history_retention and self.clock is ClockKind.VIRTUAL:
            # A test advances it by weeks in a moment, and wants to see what happened in them.
            raise ValueError("The setting history_retention cannot be used with the virtual clock.")
        shortest = max(parse_duration(self.document_retention), _SHORTEST_HISTORY)
        if self.history_retention and parse_duration(self.history_retention) < shortest:
            raise ValueError(
                "The setting history_retention must be at least 1d and not shorter than "
                "document_retention."
            )
        return self

    @model_validator(mode="after")
    def _check_trust(self) -> Self:
        if self.trusted_proxies and self.proxy_secret is None:
            raise ValueError("The setting trusted_proxies needs proxy_secret.")
        if self.trusted_proxies and self.trust_path:
            # Guests choose the path that a proxy passes on.
            raise ValueError("The setting trust_path cannot be used with trusted_proxies.")
        if (self.control_certificate is None) != (self.control_key is None):
            raise ValueError(
                "The settings control_certificate and control_key must be set together."
            )
        return self

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Take only what is given: `load_settings` puts the sources together."""
        return (init_settings,)


def load_settings(flags: Mapping[str, object], config: Path | None = None) -> Settings:
    """Return the settings from *flags*, the environment and *config*, or refuse in one sentence."""
    given: dict[str, Any] = {}
    for values in _sources(flags, config).values():
        given |= values
    return make_settings(given)


def find_origins(
    flags: Mapping[str, object], config: Path | None = None
) -> dict[str, SettingOrigin]:
    """Return where `load_settings` has each setting from."""
    origins = dict.fromkeys(Settings.model_fields, SettingOrigin.DEFAULT)
    for origin, values in _sources(flags, config).items():
        origins |= dict.fromkeys(values, origin)
    return origins


def make_settings(values: Mapping[str, Any]) -> Settings:
    """Return the settings with *values* and nothing else, or refuse in one sentence."""
    try:
        return Settings(**values)
    except ValidationError as error:
        raise _settings_error(error.errors()[0]) from error


def _sources(
    flags: Mapping[str, object], config: Path | None
) -> dict[SettingOrigin, Mapping[str, object]]:
    file = read_settings_file(config)
    for key in file:
        if key not in Settings.model_fields:
            problem = f"{config or CONFIG_FILE}: unknown setting {key!r}."
            raise SettingsError(problem, key)
    return {
        SettingOrigin.FILE: file,
        SettingOrigin.ENVIRONMENT: EnvSettingsSource(Settings)(),
        SettingOrigin.FLAG: {name: value for name, value in flags.items() if value is not None},
    }


def _settings_error(error: Mapping[str, Any]) -> SettingsError:
    problem = say_invalid(error)
    if not error["loc"]:
        return SettingsError(f"{problem}.")
    setting = str(error["loc"][0])
    return SettingsError(f"Invalid setting {setting}: {problem}.", setting)
