"""The file of executors: which command or which webhook carries out what, where."""

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Final, TypeAlias

from pydantic import Field

from forewarn.domain.host_work import HostTaskKind, HostWorkRule
from forewarn.executors.command import Command
from forewarn.executors.host_tasks import HostWork
from forewarn.executors.orders import LONGEST, Selection
from forewarn.executors.targets import ImpactTarget
from forewarn.files.tables import (
    Address,
    Headers,
    SecretTable,
    Table,
    TablesError,
    TablesFile,
    Words,
    WrongKeyError,
    duration,
    find_command,
    read_tables,
)
from forewarn.protocol.vocabulary import EventType

Duration: TypeAlias = Annotated[timedelta, duration()]


class _Selective(Table):
    event_types: tuple[EventType, ...] = ()
    hosts: tuple[str, ...] = ()
    timeout: Duration = LONGEST

    @property
    def selection(self) -> Selection:
        """For which events and hosts it is meant."""
        return Selection(event_types=self.event_types, hosts=self.hosts)


class CommandTable(_Selective):
    """A program to run."""

    run: Words


class WebhookTable(_Selective, SecretTable):
    """A target to post to."""

    url: Address = Field(repr=False)
    headers: Headers = Field(default={}, repr=False)
    request_timeout: float = Field(default=10, gt=0, le=60)


_USUAL: Final = HostWorkRule()
_VERIFY_TIMEOUT: Final = timedelta(minutes=1)

COMMANDS: Final = {
    HostTaskKind.WORK: "run",
    HostTaskKind.VERIFY: "verify",
    HostTaskKind.RETURN: "return",
}
"""Which key has the command for a task."""

_WEBHOOKS: Final = {
    HostTaskKind.WORK: "url",
    HostTaskKind.VERIFY: "verify_url",
    HostTaskKind.RETURN: "return_url",
}
_OF_WEBHOOKS: Final = ("headers", "secret", "secret_file", "request_timeout")
_OF_VERIFYING: Final = ("verify_timeout", "verify_within", "verify_every")


class HostWorkTable(SecretTable):
    """Work on some hosts, by commands or by webhooks."""

    hosts: tuple[str, ...] = ()
    labels: Mapping[str, str] = {}
    run: Words | None = None
    verify: Words | None = None
    return_: Words | None = Field(default=None, alias="return")
    url: Address | None = Field(default=None, repr=False)
    verify_url: Address | None = Field(default=None, repr=False)
    return_url: Address | None = Field(default=None, repr=False)
    headers: Headers = Field(default={}, repr=False)
    request_timeout: float = Field(default=10, gt=0, le=60)
    timeout: Duration = LONGEST
    verify_timeout: Duration = _VERIFY_TIMEOUT
    verify_within: Duration = _USUAL.verify_within
    verify_every: Duration = _USUAL.verify_every

    @property
    def commands(self) -> Mapping[HostTaskKind, Words]:
        """What to run for each task."""
        words = (self.run, self.verify, self.return_)
        return {kind: each for kind, each in zip(HostTaskKind, words, strict=True) if each}

    @property
    def urls(self) -> Mapping[HostTaskKind, str]:
        """Where to post for each task."""
        urls = (self.url, self.verify_url, self.return_url)
        return {kind: each for kind, each in zip(HostTaskKind, urls, strict=True) if each}

    @property
    def rule(self) -> HostWorkRule:
        """Which hosts it is for, or refuse keys that do not go together."""
        self._check_keys()
        return HostWorkRule(
            hosts=self.hosts,
            labels=self.labels,
            has_verify=HostTaskKind.VERIFY in {*self.commands, *self.urls},
            verify_within=self.verify_within,
            verify_every=self.verify_every,
            has_return=HostTaskKind.RETURN in {*self.commands, *self.urls},
        )

    def timeout_of(self, kind: HostTaskKind) -> timedelta:
        """Return how long one task may take."""
        if kind is HostTaskKind.VERIFY:
            return min(self.verify_timeout, self.verify_within)
        return self.timeout

    def _check_keys(self) -> None:
        if (self.run is None) == (self.url is None):
            raise WrongKeyError("", "write either run or url")
        has, misfits = (
            ("run", (*_WEBHOOKS.values(), *_OF_WEBHOOKS))
            if self.url is None
            else ("url", COMMANDS.values())
        )
        given = {"return" if name == "return_" else name for name in self.model_fields_set}
        for key in misfits:
            if key in given:
                raise WrongKeyError(key, f"it cannot be used together with {has}")
        if self.verify is None and self.verify_url is None:
            for key in _OF_VERIFYING:
                if key in given:
                    raise WrongKeyError(key, "it needs verify or verify_url")
        if self.verify_every > self.verify_within:
            raise WrongKeyError("verify_every", "it is longer than verify_within")


class ExecutorFile(Table):
    """All of the file."""

    command: tuple[CommandTable, ...] = ()
    webhook: tuple[WebhookTable, ...] = ()
    host_work: tuple[HostWorkTable, ...] = ()


def read_commands(path: Path | None, search_path: str) -> tuple[Command, ...]:
    """Return the commands of the file at *path*, or refuse; programs are found on *search_path*."""
    file = _read_with(path, "command")

    def make(table: CommandTable) -> Command:
        run = find_command(table.run, file.folder, search_path)
        return Command(run=run, selection=table.selection, timeout=table.timeout)

    return file.build("command", file.content.command, make)


def read_targets(path: Path | None) -> tuple[ImpactTarget, ...]:
    """Return the webhooks of the file at *path*, or refuse."""
    file = _read_with(path, "webhook")

    def make(table: WebhookTable) -> ImpactTarget:
        return ImpactTarget(
            url=table.url,
            headers=table.headers,
            secret=table.find_secret(file.folder),
            selection=table.selection,
            timeout=table.timeout,
            request_timeout=table.request_timeout,
        )

    return file.build("webhook", file.content.webhook, make)


def read_host_works(path: Path | None, search_path: str) -> tuple[HostWork, ...]:
    """Return the work on hosts in the file at *path*, if it has any, or refuse."""
    if path is None:
        return ()
    file = read_tables(path, ExecutorFile)

    def make(table: HostWorkTable) -> HostWork:
        return _host_work(table, file.folder, search_path)

    return file.build("host_work", file.content.host_work, make)


def read_host_work_rules(path: Path | None) -> tuple[HostWorkRule, ...]:
    """Return which hosts have work; programs and secrets are not looked for."""
    if path is None:
        return ()
    file = read_tables(path, ExecutorFile)
    return file.build("host_work", file.content.host_work, lambda table: table.rule)


def _host_work(table: HostWorkTable, folder: Path, search_path: str) -> HostWork:
    rule, secret = table.rule, table.find_secret(folder)
    commands = {
        kind: Command(
            run=find_command(words, folder, search_path, COMMANDS[kind]),
            timeout=table.timeout_of(kind),
        )
        for kind, words in table.commands.items()
    }
    targets = {
        kind: ImpactTarget(
            url=url,
            headers=table.headers,
            secret=secret,
            timeout=table.timeout_of(kind),
            request_timeout=table.request_timeout,
        )
        for kind, url in table.urls.items()
    }
    return HostWork(rule=rule, means={**commands, **targets})


def _read_with(path: Path | None, table: str) -> TablesFile[ExecutorFile]:
    """Return the file at *path*, which has to have some [[table]]."""
    if path is None:
        raise TablesError("This executor needs a file: give the setting executor_file.")
    file = read_tables(path, ExecutorFile)
    if not getattr(file.content, table):
        raise TablesError(f"{path} has no [[{table}]].")
    return file
