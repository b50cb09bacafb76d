"""What the operator has set: flag > environment (FOREWARN_…) > forewarn.toml > default.

Only this module and `environment` read the environment. Everything else is handed the values it
needs.
"""

import os
import re
from collections.abc import Mapping
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final, Self

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError, model_validator
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from forewarn.domain.notice import NoticeMode
from forewarn.domain.policy import USER_INITIATED_LIMIT
from forewarn.environment import (
    CONFIG_FILE,
    CONTROL_ADDRESS,
    PREFIX,
    SQLITE,
    SettingsError,
    read_settings_file,
)
from forewarn.operations.addresses import (
    UnixAddress,
    check_host_name,
    check_mode,
    check_network,
    parse_address,
)
from forewarn.operations.context import DOCUMENT_RETENTION
from forewarn.operations.durations import DurationError, format_duration, parse_duration
from forewarn.operations.invalid_values import say_invalid
from forewarn.protocol.versions import PreviewWire

_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")
"""How a URL begins; one letter alone is a drive."""
_LONGEST_DURATION: Final = timedelta(days=3660)


class ClockKind(StrEnum):
    """How maintenance time passes."""

    REAL = "real"
    VIRTUAL = "virtual"


class ExecutorKind(StrEnum):
    """Who carries maintenance out, unless the fleet says otherwise."""

    MANUAL = "manual"
    SIMULATED = "simulated"
    COMMAND = "command"
    WEBHOOK = "webhook"

    @property
    def is_real(self) -> bool:
        """Whether something is really done, which takes real time."""
        return self in {ExecutorKind.COMMAND, ExecutorKind.WEBHOOK}


class Origin(StrEnum):
    """Where a setting is from; what comes later wins."""

    DEFAULT = "default"
    FILE = "file"
    ENVIRONMENT = "environment"
    FLAG = "flag"


class LogFormat(StrEnum):
    """How log lines are written."""

    CONSOLE = "console"
    JSON = "json"


class LogLevel(StrEnum):
    """Which log lines are written: those of this level and above."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


def _check_listener(text: str) -> str:
    parse_address(text)
    return text


def _check_control(text: str) -> str:
    if isinstance(parse_address(text), UnixAddress):
        raise ValueError("the control API listens on HOST:PORT or [::1]:PORT only")  # noqa: TRY004
    return text


def _check_database(url: str) -> str:
    if url.startswith(("postgres:", "postgresql:", "postgresql+")):
        raise ValueError("PostgreSQL is not supported yet, write PATH or sqlite:///PATH")
    if url and _SCHEME.match(url) is None:
        return f"{SQLITE}{url}"
    if not url.startswith(SQLITE) or len(url) == len(SQLITE):
        raise ValueError(f"{url!r} names no SQLite file, write PATH or sqlite:///PATH")
    return url


def _check_duration(text: str) -> str:
    try:
        duration = parse_duration(text)
    except DurationError as error:
        raise ValueError(str(error)) from None
    if duration > _LONGEST_DURATION:
        raise ValueError(f"{text!r} is more than {_LONGEST_DURATION.days} days")
    return text


def _split(value: object) -> object:
    """Read a list from one line, as the environment has it."""
    if isinstance(value, str):
        return [part.strip() for part in value.split(",") if part.strip()]
    return value


_Listener = Annotated[str, AfterValidator(_check_listener)]
_HostName = Annotated[str, AfterValidator(check_host_name)]
_Network = Annotated[str, AfterValidator(check_network)]


class Settings(BaseSettings):
    """Everything that can be set. Made by `load_settings`, or by `make_settings` from values alone.

    Each field is a flag of `forewarn serve` with this help, a variable FOREWARN_… and a key of
    forewarn.toml.
    """

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, frozen=True, extra="forbid", validate_default=True
    )

    database: Annotated[str, AfterValidator(_check_database)] = Field(
        default="sqlite:///forewarn.db", description="The database file: PATH or sqlite:///PATH."
    )
    metadata: Annotated[tuple[_Listener, ...], NoDecode, BeforeValidator(_split)] = Field(
        default=("127.0.0.1:8169",),
        min_length=1,
        description="Where virtual machines poll: HOST:PORT, [::1]:PORT or unix:PATH.",
    )
    metadata_socket_mode: Annotated[str, AfterValidator(check_mode)] = Field(
        default="0660", description="The mode of unix sockets that virtual machines poll."
    )
    control: Annotated[str, AfterValidator(_check_control)] = Field(
        default=CONTROL_ADDRESS, description="Where operators connect: HOST:PORT."
    )
    control_host: Annotated[tuple[_HostName, ...], NoDecode, BeforeValidator(_split)] = Field(
        default=(), description="Names of the control API in URLs, besides its address."
    )
    control_certificate: Path | None = Field(
        default=None, description="The TLS certificate of the control API: a PEM file."
    )
    control_key: Path | None = Field(
        default=None, description="The key of the control certificate: a PEM file."
    )
    insecure_control: bool = Field(
        default=False, description="Let operators connect from elsewhere without TLS."
    )
    fleet: Path | None = Field(default=None, description="A fleet file to apply at each start.")
    clock: ClockKind = Field(default=ClockKind.REAL, description="How maintenance time passes.")
    speed: float = Field(
        default=1,
        ge=1,
        le=1_000_000,
        allow_inf_nan=False,
        description="Divide notice, soak, simulated impact, postponement; not --not-before.",
    )
    executor: ExecutorKind = Field(
        default=ExecutorKind.MANUAL, description="What carries out impacts."
    )
    executor_file: Path | None = Field(
        default=None,
        description="A file of commands and webhooks that carry out impacts.",
    )
    paused: bool = Field(
        default=False, description="Serve, but begin nothing until forewarn resume."
    )
    notice: NoticeMode = Field(
        default=NoticeMode.ALWAYS,
        description="Whether to announce user operations that no client polls for.",
    )
    default_vm: str | None = Field(
        default=None,
        description="The virtual machine that local callers are unless they name another.",
    )
    trust_path: bool = Field(
        default=False, description="Trust the path prefix /vm/NAME to say who calls."
    )
    state_dir: Path | None = Field(
        default=None,
        description="Where the admin token and what executors remember are kept; "
        "beside the database unless given.",
    )
    preview_wire: PreviewWire = Field(
        default=PreviewWire.DOCUMENTED,
        description="Which account of api-version 2017-03-01 to serve.",
    )
    user_initiated_limit: int = Field(
        default=USER_INITIATED_LIMIT, ge=1, description="How many user operations may be in flight."
    )
    document_retention: Annotated[str, AfterValidator(_check_duration)] = Field(
        default=format_duration(DOCUMENT_RETENTION),
        description="How long served documents are kept for event seen.",
    )
    proxy_secret: str | None = Field(
        default=None, repr=False, min_length=1, description="The secret of the trusted proxies."
    )
    trusted_proxies: Annotated[tuple[_Network, ...], NoDecode, BeforeValidator(_split)] = Field(
        default=(), description="Proxies whose signed headers are trusted: addresses or networks."
    )
    notifications: Path | None = Field(default=None, description="A file of notification targets.")
    overdue_after: Annotated[str, AfterValidator(_check_duration)] = Field(
        default="1h", description="How much longer than announced an event may take."
    )
    gates: Path | None = Field(default=None, description="A file of gates to ask before each step.")
    migrate: bool = Field(default=True, description="Bring the database up to date at start.")
    log_format: LogFormat = Field(
        default=LogFormat.CONSOLE, description="How log lines are written."
    )
    log_level: LogLevel = Field(
        default=LogLevel.INFO, description="The lowest level of log lines to write."
    )

    @property
    def database_path(self) -> Path:
        """The SQLite file."""
        return Path(self.database.removeprefix(SQLITE))

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
        return self.state_dir or self.database_path.parent

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        if self.clock is ClockKind.VIRTUAL and self.speed != 1:
            raise ValueError("The setting speed cannot be used with clock virtual.")
        if self.executor.is_real and self.clock is ClockKind.VIRTUAL:
            raise ValueError(f"The executor {self.executor} cannot be used with clock virtual.")
        if self.executor.is_real and self.executor_file is None:
            raise ValueError(f"The executor {self.executor} needs the setting executor_file.")
        if self.executor.is_real and os.name == "nt":
            raise ValueError(f"The executor {self.executor} cannot be used on Windows.")
        if self.executor_file is not None and os.name == "nt":
            raise ValueError("The setting executor_file cannot be used on Windows.")
        return self

    @model_validator(mode="after")
    def _check_trust(self) -> Self:
        if self.trusted_proxies and self.proxy_secret is None:
            raise ValueError("The setting trusted_proxies needs proxy_secret.")
        if self.trusted_proxies and self.trust_path:
            # Guests choose the path that a proxy passes on.
            raise ValueError("The setting trust_path cannot be used with trusted_proxies.")
        if (self.control_certificate is None) != (self.control_key is None):
            raise ValueError("The settings control_certificate and control_key need each other.")
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


def find_origins(flags: Mapping[str, object], config: Path | None = None) -> dict[str, Origin]:
    """Return where `load_settings` has each setting from."""
    origins = dict.fromkeys(Settings.model_fields, Origin.DEFAULT)
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
) -> dict[Origin, Mapping[str, object]]:
    file = read_settings_file(config)
    for key in file:
        if key not in Settings.model_fields:
            problem = f"{config or CONFIG_FILE}: there is no setting called {key!r}."
            raise SettingsError(problem, key)
    return {
        Origin.FILE: file,
        Origin.ENVIRONMENT: EnvSettingsSource(Settings)(),
        Origin.FLAG: {name: value for name, value in flags.items() if value is not None},
    }


def _settings_error(error: Mapping[str, Any]) -> SettingsError:
    problem = say_invalid(error)
    if not error["loc"]:
        return SettingsError(f"{problem}.")
    setting = str(error["loc"][0])
    return SettingsError(f"The setting {setting} is wrong: {problem}.", setting)
