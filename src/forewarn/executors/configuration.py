"""The file of executors: which command, webhook or libvirt carries out what, where."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from importlib.util import find_spec
from operator import itemgetter
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias, TypeVar

from pydantic import AfterValidator, Field

from forewarn.domain.host_work import HostTask, HostTaskKind, HostWorkRule
from forewarn.domain.impact import Impact, ImpactStatus
from forewarn.domain.task import FETCHED
from forewarn.domain.topology import Host
from forewarn.executors.command import Command
from forewarn.executors.libvirt.hypervisors import CONNECT_TIMEOUT, GRACE, HOST, Hypervisor
from forewarn.executors.task_input import LONGEST, Selection, host_task_input
from forewarn.executors.webhook import WebhookTarget
from forewarn.files.tables import (
    Address,
    Headers,
    SecretTable,
    Table,
    Words,
    WrongKeyError,
    duration,
    find_command,
    read_tables,
)
from forewarn.operations.tasks import fetching_node
from forewarn.ports.runner import Assignment
from forewarn.protocol.vocabulary import EventType
from forewarn.wording.durations import format_duration

T = TypeVar("T")

FETCH_WITHIN: Final = timedelta(minutes=10)
"""How long a host may take to fetch a task unless the operator says otherwise."""
_ADVICE: Final = "check that forewarn host work is running there"

Duration: TypeAlias = Annotated[timedelta, duration()]

_URI: Final = re.compile(r"[a-z]+(\+[a-z0-9]+)?://[^\s{}]*")


def _check_uri(uri: str) -> str:
    if _URI.fullmatch(uri.replace(HOST, "host")) is None:
        raise ValueError(
            f"{uri!r} is not a valid URI; write one such as 'qemu+ssh://root@{HOST}/system', "
            f"where {HOST} stands for the name of the host"
        )
    return uri


Uri: TypeAlias = Annotated[str, AfterValidator(_check_uri)]


_SSH: Final = (
    "ssh",
    *("-o", "BatchMode=yes"),
    *("-o", "ConnectTimeout=10"),
    *("-o", "ServerAliveInterval=15"),
)
"""A host that asks for a password or stops answering is a failure, not a wait."""


def _check_destination(text: str) -> str:
    if not re.fullmatch(r"[\w.@:/\[\]-]+", text.replace(HOST, "host")) or text.startswith("-"):
        raise ValueError('write an ssh destination such as "root@{host}"')
    return text


SshDestination: TypeAlias = Annotated[str, AfterValidator(_check_destination)]


_PATTERN: Final = re.compile(r"[\w.*?!\[\]-]+", re.ASCII)


def _check_pattern(pattern: str) -> str:
    if _PATTERN.fullmatch(pattern) is None:
        raise ValueError(f"{pattern!r} is neither the name of a host nor a pattern such as 'kvm-*'")
    return pattern


def _check_any(items: tuple[T, ...]) -> tuple[T, ...]:
    # Whoever writes an empty list may mean none.
    if not items:
        raise ValueError("it is empty; omit it to include all")
    return items


Patterns: TypeAlias = Annotated[
    tuple[Annotated[str, AfterValidator(_check_pattern)], ...], AfterValidator(_check_any)
]
"""Names of hosts, and patterns for them."""


class SelectiveTable(Table):
    """What is meant for some events and hosts: without other keys, an operator's hands."""

    event_types: Annotated[tuple[EventType, ...], AfterValidator(_check_any)] = ()
    hosts: Patterns = ()
    labels: Mapping[str, str] = {}

    @property
    def selection(self) -> Selection:
        """For which events and hosts it is meant."""
        return Selection(event_types=self.event_types, hosts=self.hosts, labels=self.labels)


class CommandTable(SelectiveTable):
    """A program to run, here or on the host by *ssh*."""

    run: Words
    ssh: SshDestination | None = None
    timeout: Duration = LONGEST


class WebhookTable(SelectiveTable, SecretTable):
    """A target to post to."""

    timeout: Duration = LONGEST
    url: Address = Field(repr=False)
    headers: Headers = Field(default={}, repr=False)
    request_timeout: float = Field(default=10, gt=0, le=60)


class LibvirtTable(SelectiveTable):
    """The libvirt of some hosts."""

    uri: Uri
    timeout: Duration = LONGEST
    connect_timeout: Annotated[timedelta, duration(timedelta(minutes=10))] = CONNECT_TIMEOUT
    grace: Duration = GRACE
    migrate: bool = False
    migrate_uri: Uri | None = None
    unsafe_migration: bool = False
    to: Patterns = ()
    ephemeral: tuple[str, ...] = ()

    @property
    def hypervisor(self) -> Hypervisor:
        """What it describes, or refuse keys that do not go together."""
        for key in ("migrate_uri", "unsafe_migration"):
            if key in self.model_fields_set and not self.migrate:
                raise WrongKeyError(key, "it needs migrate = true")
        if find_spec("libvirt") is None:
            needed = "libvirt-python is not installed; run: pip install 'forewarn[libvirt]'"
            raise WrongKeyError("uri", needed)
        given = {name: getattr(self, name) for name in LibvirtTable.__annotations__}
        return Hypervisor(selection=self.selection, **given)


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
_OF_COMMANDS: Final = (*COMMANDS.values(), "ssh")
_OF_THE_HOST: Final = ("fetch_within",)
_TIMEOUTS: Final = ("timeout", "verify_timeout")
_OF_VERIFYING: Final = ("verify_timeout", "verify_within", "verify_every")
_MISFITS: Final[Mapping[str, tuple[str, ...]]] = {
    "run": (*_WEBHOOKS.values(), *_OF_WEBHOOKS, *_OF_THE_HOST),
    "url": (*_OF_COMMANDS, *_OF_THE_HOST),
    # How long a program may take is said in the file of the host.
    "fetched": (*_WEBHOOKS.values(), *_OF_WEBHOOKS, *_OF_COMMANDS, *_TIMEOUTS),
}
"""Who does the work, by the key that says so, and the keys that are for others."""


def _check_fetched(kinds: tuple[HostTaskKind, ...]) -> tuple[HostTaskKind, ...]:
    if HostTaskKind.WORK not in kinds:
        raise ValueError('"work" is required; "verify" and "return" are optional')
    return kinds


class HostWorkTable(SecretTable):
    """Work on some hosts, by commands, by webhooks, or by the hosts themselves."""

    hosts: Patterns = ()
    labels: Mapping[str, str] = {}
    run: Words | None = None
    ssh: SshDestination | None = None
    verify: Words | None = None
    return_: Words | None = Field(default=None, alias="return")
    fetched: Annotated[tuple[HostTaskKind, ...], AfterValidator(_check_fetched)] | None = None
    fetch_within: Duration = FETCH_WITHIN
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
    def kinds(self) -> frozenset[HostTaskKind]:
        """What somebody is named for."""
        return frozenset({*self.commands, *self.urls, *(self.fetched or ())})

    @property
    def rule(self) -> HostWorkRule:
        """Which hosts it is for, or refuse keys that do not go together."""
        self._check_keys()
        return HostWorkRule(
            hosts=self.hosts,
            labels=self.labels,
            has_verify=HostTaskKind.VERIFY in self.kinds,
            verify_within=self.verify_within,
            verify_every=self.verify_every,
            has_return=HostTaskKind.RETURN in self.kinds,
        )

    def timeout_of(self, kind: HostTaskKind) -> timedelta:
        """Return how long one task may take."""
        if kind is HostTaskKind.VERIFY:
            return min(self.verify_timeout, self.verify_within)
        return self.timeout

    def _check_keys(self) -> None:
        given = {"return" if name == "return_" else name for name in self.model_fields_set}
        chosen = [key for key in _MISFITS if key in given]
        if len(chosen) != 1:
            raise WrongKeyError("", "write one of run, url and fetched")
        for key in _MISFITS[chosen[0]]:
            if key in given:
                raise WrongKeyError(key, f"it cannot be used together with {chosen[0]}")
        if HostTaskKind.VERIFY not in self.kinds:
            for key in _OF_VERIFYING:
                if key in given:
                    raise WrongKeyError(key, 'it needs verify, verify_url, or "verify" in fetched')
        if self.verify_every > self.verify_within:
            raise WrongKeyError("verify_every", "it is longer than verify_within")


class ExecutorFile(Table):
    """All of the file."""

    command: tuple[CommandTable, ...] = ()
    webhook: tuple[WebhookTable, ...] = ()
    libvirt: tuple[LibvirtTable, ...] = ()
    manual: tuple[SelectiveTable, ...] = ()
    host_work: tuple[HostWorkTable, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ByHand:
    """The operator does it, and says so with `forewarn event complete`."""

    selection: Selection = field(default_factory=Selection)


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedByHost:
    """The host fetches its work, at the latest *within* this time.

    The database has the task, so any replica can hand it out and take the report. The host records
    what it has begun.
    """

    within: timedelta = FETCH_WITHIN

    def assign(self, task: HostTask) -> Assignment:
        """Return that the host of *task* is to fetch it."""
        limit = format_duration(self.within)
        return Assignment(
            runner=FETCHED,
            said=Impact(
                status=ImpactStatus.NOT_BEGUN,
                reason=f"the host has not fetched it yet; {_ADVICE}",
            ),
            node=fetching_node(task.host),
            details={
                "order": host_task_input(task, epoch=0).content,
                "within_seconds": self.within.total_seconds(),
                "not_fetched": f"the host did not fetch it within {limit}; {_ADVICE}",
            },
        )


ImpactExecutor: TypeAlias = Command | WebhookTarget | Hypervisor | ByHand
HostExecutor: TypeAlias = Command | WebhookTarget | FetchedByHost


@dataclass(frozen=True, slots=True, kw_only=True)
class HostWork:
    """The executor of each part of the work on the hosts of a *rule*."""

    rule: HostWorkRule
    executors: Mapping[HostTaskKind, HostExecutor]


@dataclass(frozen=True, slots=True, kw_only=True)
class Executors:
    """What the file says: the executors of impacts, in its order, and the work on hosts."""

    impacts: tuple[ImpactExecutor, ...] = ()
    host_works: tuple[HostWork, ...] = ()

    def find_impact(self, event_type: EventType, host: Host | None) -> ImpactExecutor | None:
        """Return the first executor that is meant for such an event on *host*."""
        fitting = (each for each in self.impacts if each.selection.fits(event_type, host))
        return next(fitting, None)

    def find_host_task(self, kind: HostTaskKind, host: Host) -> HostExecutor | None:
        """Return the executor of this part of the work on *host*."""
        fitting = (each for each in self.host_works if each.rule.fits(host))
        work = next(fitting, None)
        return work.executors.get(kind) if work else None


def read_executors(path: Path, search_path: str) -> Executors:
    """Return what the file at *path* says, or refuse; programs are found on *search_path*."""
    file = read_tables(path, ExecutorFile)
    makers = _makers(file.folder, search_path)
    made = [
        (file.line_of(table, number), executor)
        for table, make in makers.items()
        for number, executor in enumerate(file.build(table, getattr(file.content, table), make))
    ]
    works = file.build(
        "host_work",
        file.content.host_work,
        lambda table: _host_work(table, file.folder, search_path),
    )
    # Tables of all kinds in the order in which they are written: the first that fits is used.
    in_order = sorted(made, key=itemgetter(0))
    return Executors(impacts=tuple(each for _, each in in_order), host_works=works)


def read_host_work_rules(path: Path) -> tuple[HostWorkRule, ...]:
    """Return which hosts have work; programs and secrets are not looked for."""
    file = read_tables(path, ExecutorFile)
    return file.build("host_work", file.content.host_work, lambda table: table.rule)


def _host_work(table: HostWorkTable, folder: Path, search_path: str) -> HostWork:
    rule, secret = table.rule, table.find_secret(folder)
    programs = _ProgramFinder(folder, search_path, table.ssh)
    commands = {
        kind: Command(
            run=programs.find(words, COMMANDS[kind]),
            timeout=table.timeout_of(kind),
            ssh=programs.ssh,
        )
        for kind, words in table.commands.items()
    }
    targets = {
        kind: WebhookTarget(
            url=url,
            headers=table.headers,
            secret=secret,
            timeout=table.timeout_of(kind),
            request_timeout=table.request_timeout,
        )
        for kind, url in table.urls.items()
    }
    fetched = dict.fromkeys(table.fetched or (), FetchedByHost(within=table.fetch_within))
    return HostWork(rule=rule, executors={**commands, **targets, **fetched})


@dataclass(frozen=True, slots=True)
class _ProgramFinder:
    """Where programs of a table are found: on this machine, or on the host that *destination* is.

    What is on a host is found there when it is run.
    """

    folder: Path
    search_path: str
    destination: str | None

    def find(self, words: Words, key: str) -> Words:
        if self.destination is not None:
            return words
        return find_command(words, self.folder, self.search_path, key)

    @property
    def ssh(self) -> Words:
        if self.destination is None:
            return ()
        ssh = find_command((_SSH[0],), self.folder, self.search_path, "ssh")
        return (*ssh, *_SSH[1:], self.destination)


def _makers(folder: Path, search_path: str) -> Mapping[str, Callable[[Any], ImpactExecutor]]:
    """Return how each kind of table becomes an executor of impacts."""

    def command(table: CommandTable) -> Command:
        programs = _ProgramFinder(folder, search_path, table.ssh)
        return Command(
            run=programs.find(table.run, "run"),
            selection=table.selection,
            timeout=table.timeout,
            ssh=programs.ssh,
        )

    def webhook(table: WebhookTable) -> WebhookTarget:
        return WebhookTarget(
            url=table.url,
            headers=table.headers,
            secret=table.find_secret(folder),
            selection=table.selection,
            timeout=table.timeout,
            request_timeout=table.request_timeout,
        )

    def manual(table: SelectiveTable) -> ByHand:
        return ByHand(selection=table.selection)

    def libvirt(table: LibvirtTable) -> Hypervisor:
        return table.hypervisor

    return {"command": command, "webhook": webhook, "libvirt": libvirt, "manual": manual}
