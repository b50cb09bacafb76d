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


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One setting, as the help shows it; with a tuple as its default it may be repeated."""

    kind: type
    summary: str
    default: object = None
    metavar: str | None = None
    is_secret: bool = False


SETTINGS: Final[Mapping[str, Setting]] = {
    "database": Setting(
        kind=str,
        summary="The database file: PATH or sqlite:///PATH.",
        default="sqlite:///forewarn.db",
        metavar="FILE",
    ),
    "metadata": Setting(
        kind=str,
        summary="Where virtual machines poll: HOST:PORT, [::1]:PORT or unix:PATH.",
        default=("127.0.0.1:8169",),
        metavar="HOST:PORT",
    ),
    "metadata_socket_mode": Setting(
        kind=str,
        summary="The mode of unix sockets that virtual machines poll.",
        default="0660",
        metavar="MODE",
    ),
    "control": Setting(
        kind=str,
        summary="Where operators connect: HOST:PORT.",
        default=CONTROL_ADDRESS,
        metavar="HOST:PORT",
    ),
    "control_host": Setting(
        kind=str,
        summary="Names of the control API in URLs, besides its address.",
        default=(),
        metavar="NAME",
    ),
    "control_certificate": Setting(
        kind=Path, summary="The TLS certificate of the control API: a PEM file.", metavar="FILE"
    ),
    "control_key": Setting(
        kind=Path, summary="The key of the control certificate: a PEM file.", metavar="FILE"
    ),
    "insecure_control": Setting(
        kind=bool, summary="Let operators connect from elsewhere without TLS.", default=False
    ),
    "fleet": Setting(kind=Path, summary="A fleet file to apply at each start.", metavar="FILE"),
    "clock": Setting(
        kind=ClockKind, summary="How maintenance time passes.", default=ClockKind.REAL
    ),
    "speed": Setting(
        kind=float,
        summary="Divide notice, soak, simulated impact, postponement; not --not-before.",
        default=1,
        metavar="N",
    ),
    "executor": Setting(
        kind=ExecutorKind, summary="What carries out impacts.", default=ExecutorKind.MANUAL
    ),
    "executor_file": Setting(
        kind=Path, summary="A file of commands and webhooks that carry out impacts.", metavar="FILE"
    ),
    "paused": Setting(
        kind=bool, summary="Serve, but begin nothing until forewarn resume.", default=False
    ),
    "notice": Setting(
        kind=NoticeMode,
        summary="Whether to announce user operations that no client polls for.",
        default=NoticeMode.ALWAYS,
    ),
    "default_vm": Setting(
        kind=str,
        summary="The virtual machine that local callers are unless they name another.",
        metavar="NAME",
    ),
    "trust_path": Setting(
        kind=bool, summary="Trust the path prefix /vm/NAME to say who calls.", default=False
    ),
    "state_dir": Setting(
        kind=Path,
        summary="Where the admin token and what executors remember are kept; "
        "beside the database unless given.",
        metavar="DIR",
    ),
    "preview_wire": Setting(
        kind=PreviewWire,
        summary="Which account of api-version 2017-03-01 to serve.",
        default=PreviewWire.DOCUMENTED,
    ),
    "user_initiated_limit": Setting(
        kind=int,
        summary="How many user operations may be in flight.",
        default=USER_INITIATED_LIMIT,
        metavar="N",
    ),
    "document_retention": Setting(
        kind=str,
        summary="How long served documents are kept for event seen.",
        default=f"{DOCUMENT_RETENTION.days}d",
        metavar="DURATION",
    ),
    "proxy_secret": Setting(kind=str, summary="The secret of the trusted proxies.", is_secret=True),
    "trusted_proxies": Setting(
        kind=str,
        summary="Proxies whose signed headers are trusted: addresses or networks.",
        default=(),
        metavar="ADDRESS",
    ),
    "notifications": Setting(kind=Path, summary="A file of notification targets.", metavar="FILE"),
    "overdue_after": Setting(
        kind=str,
        summary="How much longer than announced an event may take.",
        default="1h",
        metavar="DURATION",
    ),
    "gates": Setting(kind=Path, summary="A file of gates to ask before each step.", metavar="FILE"),
    "migrate": Setting(kind=bool, summary="Bring the database up to date at start.", default=True),
    "log_format": Setting(
        kind=LogFormat, summary="How log lines are written.", default=LogFormat.CONSOLE
    ),
    "log_level": Setting(
        kind=LogLevel, summary="The lowest level of log lines to write.", default=LogLevel.INFO
    ),
}
"""By name, in the order of the help."""
