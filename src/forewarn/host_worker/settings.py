"""The file of a host that does its own work: the server, and the only programs that may run."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Final, TypeAlias

from pydantic import Field

from forewarn.domain.host_work import HostTaskKind
from forewarn.executors.command import Command
from forewarn.executors.task_input import LONGEST, TaskInput
from forewarn.files.tables import (
    Table,
    TablesError,
    Words,
    WrongKeyError,
    duration,
    find_command,
    read_tables,
)
from forewarn.front.server_urls import check_server
from forewarn.private_files import is_trusted
from forewarn.settings_table import LogFormat, LogLevel

STATE_DIRECTORY: Final = Path("/var/lib/forewarn-host-work")

_VERIFY_TIMEOUT: Final = timedelta(minutes=1)

_Duration: TypeAlias = Annotated[timedelta, duration()]


class HostWorkFile(Table):
    """All of the file. The keys for programs are those of the server's [[host_work]]."""

    server: str
    token_file: Path
    ca_file: Path | None = None
    insecure_control: bool = False
    state_dir: Path = STATE_DIRECTORY
    run: Words
    timeout: _Duration = LONGEST
    restarts_host: bool = False
    verify: Words | None = None
    verify_timeout: _Duration = _VERIFY_TIMEOUT
    return_: Words | None = Field(default=None, alias="return")
    log_format: LogFormat = LogFormat.CONSOLE
    log_level: LogLevel = LogLevel.INFO


@dataclass(frozen=True, slots=True, kw_only=True)
class HostWorkSettings:
    """Where the server is, and the command for each task that this host does.

    If the host restarts during its work, that is done if it *restarts_host*, and unknown otherwise.
    """

    server: str
    token_file: Path
    ca_file: Path | None
    state_dir: Path
    commands: Mapping[HostTaskKind, Command]
    restarts_host: bool
    log_format: LogFormat
    log_level: LogLevel

    def find(self, task: TaskInput) -> Command | None:
        """Return the command for *task*, if this host has one."""
        return self.commands.get(task.kind) if task.kind else None


def read_host_work_settings(path: Path, search_path: str) -> HostWorkSettings:
    """Return what the file at *path* says, or refuse; programs are found on *search_path*."""
    file = read_tables(path, HostWorkFile)
    if not is_trusted(path):
        raise TablesError(
            f"Other users can change {path}; run: chown root {path}; chmod o-w {path}"
        )
    (settings,) = file.build(
        "", [file.content], lambda content: _settings(content, file.folder, search_path)
    )
    check_server(settings.server, insecure_control=file.content.insecure_control)
    return settings


def _settings(content: HostWorkFile, folder: Path, search_path: str) -> HostWorkSettings:
    def command(key: str, words: Words, timeout: timedelta) -> Command:
        run = find_command(words, folder, search_path, key)
        if not is_trusted(Path(run[0])):
            raise WrongKeyError(key, f"other users can change the program {run[0]!r}")
        return Command(run=run, timeout=timeout)

    given = {
        HostTaskKind.WORK: ("run", content.run, content.timeout),
        HostTaskKind.VERIFY: ("verify", content.verify, content.verify_timeout),
        HostTaskKind.RETURN: ("return", content.return_, content.timeout),
    }
    return HostWorkSettings(
        server=content.server,
        token_file=folder / content.token_file,
        ca_file=None if content.ca_file is None else folder / content.ca_file,
        state_dir=folder / content.state_dir,
        commands={
            kind: command(key, words, timeout)
            for kind, (key, words, timeout) in given.items()
            if words is not None
        },
        restarts_host=content.restarts_host,
        log_format=content.log_format,
        log_level=content.log_level,
    )
