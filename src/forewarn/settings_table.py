"""What a server can be set to, and how the help describes it; `settings` checks the values.

It costs little to import: help needs no more than this.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from forewarn.domain.limits import DOCUMENT_RETENTION, USER_INITIATED_LIMIT
from forewarn.domain.notice import NoticeMode
from forewarn.environment import CONTROL_ADDRESS
from forewarn.wording.database_urls import has_password


class ClockKind(StrEnum):
    """Clock for maintenance time."""

    REAL = "real"
    VIRTUAL = "virtual"


class ExecutorKind(StrEnum):
    """Who carries maintenance out: operators, with what their file names, or nobody really."""

    MANUAL = "manual"
    SIMULATED = "simulated"


class LogFormat(StrEnum):
    """How log lines are written."""

    CONSOLE = "console"
    JSON = "json"


class LogLevel(StrEnum):
    """Which log lines are written: those of this level and above."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class SettingOrigin(StrEnum):
    """Where a setting is from; what comes later wins."""

    DEFAULT = "default"
    FILE = "file"
    ENVIRONMENT = "environment"
    FLAG = "flag"


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting, as the help shows it; with a tuple as its default it may be repeated."""

    summary: str
    default: object = None
    metavar: str | None = None
    kind: type = str
    is_secret: bool = False
    is_url: bool = False
    """Whether it may have a password in it."""

    def hides(self, value: object) -> bool:
        """Tell whether there is a secret in *value*."""
        if self.is_url:
            return has_password(str(value))
        return self.is_secret and value is not None


def _path(summary: str, metavar: str = "FILE") -> Setting:
    return Setting(summary, metavar=metavar, kind=Path)


def _switch(summary: str, *, default: bool = False) -> Setting:
    return Setting(summary, default, kind=bool)


def _choice(summary: str, default: StrEnum) -> Setting:
    return Setting(summary, default, kind=type(default))


SETTINGS: Final[Mapping[str, Setting]] = {
    "database": Setting(
        "Database: PATH, sqlite:///PATH or postgresql://HOST/DB.",
        "sqlite:///forewarn.db",
        "URL",
        is_url=True,
    ),
    "metadata": Setting(
        "Address that VMs poll: HOST:PORT, [::1]:PORT or unix:PATH.",
        ("127.0.0.1:8169",),
        "HOST:PORT",
    ),
    "metadata_socket_mode": Setting("File mode of Unix sockets that VMs poll.", "0660", "MODE"),
    "control": Setting(
        "Address of the control API and console: HOST:PORT.", CONTROL_ADDRESS, "HOST:PORT"
    ),
    "control_host": Setting("Additional host name that the control API accepts.", (), "NAME"),
    "control_certificate": _path("TLS certificate of the control API (PEM file)."),
    "control_key": _path("Private key of the control API's certificate (PEM file)."),
    "insecure_control": _switch("Allow remote operators to connect without TLS."),
    "fleet": _path("Fleet file to apply at each start."),
    "clock": _choice("Clock for maintenance time.", ClockKind.REAL),
    "speed": Setting("Divide notice, soak, simulated impact and postponement by N.", 1, "N", float),
    "executor": _choice("Leave impacts to an operator, or simulate them.", ExecutorKind.MANUAL),
    "executor_file": _path("File with executors for hosts and event types."),
    "discovery_file": _path("File with the sources that discover virtual machines."),
    "paused": _switch("Serve polls, but start nothing until forewarn resume."),
    "notice": _choice(
        "Announce user operations always, or only to scopes that poll.", NoticeMode.ALWAYS
    ),
    "default_vm": Setting("VM assumed for local requests that name none.", metavar="NAME"),
    "trust_path": _switch("Identify VMs by the path prefix /vm/NAME."),
    "state_dir": _path(
        "Directory for admin token and records of tasks (default: the database's).",
        "DIR",
    ),
    "user_initiated_limit": Setting(
        "Maximum number of user operations in flight.", USER_INITIATED_LIMIT, "N", int
    ),
    "document_retention": Setting(
        "How long to keep served documents and executor records.",
        f"{DOCUMENT_RETENTION.days}d",
        "DURATION",
    ),
    "history_retention": Setting(
        "How long to keep history and audit (default: forever).", metavar="DURATION"
    ),
    "proxy_secret": Setting("Secret shared with the trusted proxies.", is_secret=True),
    "trusted_proxies": Setting(
        "Address or network of proxies whose signed headers are trusted.", (), "ADDRESS"
    ),
    "notifications": _path("File with notification targets."),
    "overdue_after": Setting(
        "How far past its announced duration an event becomes overdue.", "1h", "DURATION"
    ),
    "owner_grace": Setting(
        "How long a replica may be away before its tasks are unknown.", "5m", "DURATION"
    ),
    "clock_tolerance": Setting(
        "How far a leader's clock may differ from the database's.", "2s", "DURATION"
    ),
    "gates": _path("File with gates to ask between steps."),
    "migrate": _switch("Upgrade the database schema at start.", default=True),
    "journal": _switch("Record requests from VMs and their responses, for tests."),
    "log_format": _choice("Format of log lines.", LogFormat.CONSOLE),
    "log_level": _choice("Minimum level of log lines.", LogLevel.INFO),
}
"""By name, in the order of the help."""
