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
from forewarn.protocol.versions import PreviewWire
from forewarn.wording.database_urls import has_password


class ClockKind(StrEnum):
    """How maintenance time passes."""

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
        "The database: PATH, sqlite:///PATH or postgresql://HOST/DB.",
        "sqlite:///forewarn.db",
        "URL",
        is_url=True,
    ),
    "metadata": Setting(
        "Where virtual machines poll: HOST:PORT, [::1]:PORT or unix:PATH.",
        ("127.0.0.1:8169",),
        "HOST:PORT",
    ),
    "metadata_socket_mode": Setting(
        "The mode of unix sockets that virtual machines poll.", "0660", "MODE"
    ),
    "fronts": Setting("Processes that answer virtual machines; 0: the server itself.", 0, "N", int),
    "control": Setting("Where operators connect: HOST:PORT.", CONTROL_ADDRESS, "HOST:PORT"),
    "control_host": Setting("Names of the control API in URLs, besides its address.", (), "NAME"),
    "control_certificate": _path("The TLS certificate of the control API: a PEM file."),
    "control_key": _path("The key of the control certificate: a PEM file."),
    "insecure_control": _switch("Let operators connect from elsewhere without TLS."),
    "fleet": _path("A fleet file to apply at each start."),
    "clock": _choice("How maintenance time passes.", ClockKind.REAL),
    "speed": Setting(
        "Divide notice, soak, simulated impact, postponement; not --not-before.", 1, "N", float
    ),
    "executor": _choice("Carry out impacts, or only simulate them.", ExecutorKind.MANUAL),
    "executor_file": _path("What carries out impacts, by host and event type."),
    "discovery_file": _path("Sources that say which virtual machines there are."),
    "paused": _switch("Serve, but begin nothing until forewarn resume."),
    "notice": _choice(
        "Whether to announce user operations that no client polls for.", NoticeMode.ALWAYS
    ),
    "default_vm": Setting(
        "The virtual machine that local callers are unless they name another.", metavar="NAME"
    ),
    "trust_path": _switch("Trust the path prefix /vm/NAME to say who calls."),
    "state_dir": _path(
        "Where the admin token and what executors remember are kept; "
        "beside the database file unless given.",
        "DIR",
    ),
    "preview_wire": _choice(
        "Which account of api-version 2017-03-01 to serve.", PreviewWire.DOCUMENTED
    ),
    "user_initiated_limit": Setting(
        "How many user operations may be in flight.", USER_INITIATED_LIMIT, "N", int
    ),
    "document_retention": Setting(
        "How long served documents and executors' records are kept.",
        f"{DOCUMENT_RETENTION.days}d",
        "DURATION",
    ),
    "proxy_secret": Setting("The secret of the trusted proxies.", is_secret=True),
    "trusted_proxies": Setting(
        "Proxies whose signed headers are trusted: addresses or networks.", (), "ADDRESS"
    ),
    "notifications": _path("A file of notification targets."),
    "overdue_after": Setting("How much longer than announced an event may take.", "1h", "DURATION"),
    "gates": _path("A file of gates to ask before each step."),
    "migrate": _switch("Bring the database up to date at start.", default=True),
    "journal": _switch("Keep what virtual machines ask and are answered, for tests."),
    "log_format": _choice("How log lines are written.", LogFormat.CONSOLE),
    "log_level": _choice("The lowest level of log lines to write.", LogLevel.INFO),
}
"""By name, in the order of the help."""
