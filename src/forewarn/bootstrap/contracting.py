"""Scripts and webhooks that carry maintenance out, as the file of executors says.

They need a POSIX system; the rest of the server does not, and imports this only where it has to.
"""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from forewarn.clocks import SystemClock
from forewarn.domain.host_work import HostWorkRule
from forewarn.domain.names import HostName, VmName
from forewarn.domain.notification import Retrying
from forewarn.domain.topology import Host
from forewarn.executors.command import Command, ScriptContractor
from forewarn.executors.configuration import (
    ExecutorFileError,
    read_commands,
    read_host_work_rules,
    read_host_works,
    read_targets,
)
from forewarn.executors.exchange import Target
from forewarn.executors.host_tasks import (
    HOST_TASKS,
    ContractedHostWorker,
    HostWork,
    find_for_host,
)
from forewarn.executors.impacts import IMPACTS, ContractedExecutor, find_among
from forewarn.executors.orders import Contractor, OrderKind
from forewarn.executors.records import Records
from forewarn.executors.webhook import WebhookContractor
from forewarn.operations.pausing import find_pause
from forewarn.ports.clock import Clock
from forewarn.ports.executor import Executor
from forewarn.ports.host_worker import HostWorker
from forewarn.ports.store import Store
from forewarn.settings import ClockKind, Settings, environment_with

_ASKING: Final = Retrying(first=timedelta(seconds=1), longest=timedelta(minutes=1))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Contracting:
    """What the contractors for one kind of orders have in common."""

    kind: OrderKind
    records: Records
    clock: Clock

    def scripts(self, find: Callable[[Mapping[str, Any]], Command | None]) -> Contractor:
        return ScriptContractor(
            find,
            kind=self.kind,
            records=self.records,
            environment=environment_with({}),
            clock=self.clock,
        )

    def webhooks(self, find: Callable[[Mapping[str, Any]], Target | None]) -> Contractor:
        return WebhookContractor(
            find,
            kind=self.kind,
            records=self.records,
            clock=self.clock,
            wall=SystemClock(),
            wait=lambda failures: _ASKING.wait(max(failures, 1), random.random()),  # noqa: S311
        )


def command_executor(
    settings: Settings,
) -> Callable[[Store, Clock], AbstractContextManager[Executor]]:
    """Return how to make the executor that runs scripts, or refuse what the file says."""
    find = find_among(read_commands(settings.executor_file, _search_path()))
    return _executor(settings, lambda contracting: contracting.scripts(find))


def webhook_executor(
    settings: Settings,
) -> Callable[[Store, Clock], AbstractContextManager[Executor]]:
    """Return how to make the executor that posts to webhooks, or refuse what the file says."""
    find = find_among(read_targets(settings.executor_file))
    return _executor(settings, lambda contracting: contracting.webhooks(find))


def host_worker(
    settings: Settings,
) -> Callable[[Store, Clock], AbstractContextManager[HostWorker | None]]:
    """Return how to make who works on hosts, if any host has work, or refuse what the file says."""
    works = read_host_works(settings.executor_file, _search_path())
    if works and settings.clock is ClockKind.VIRTUAL:
        raise ExecutorFileError(
            f"{settings.executor_file} has [[host_work]], which cannot be done with clock virtual; "
            "use the executor simulated."
        )

    @contextmanager
    def make(store: Store, clock: Clock) -> Iterator[HostWorker | None]:
        if not works:
            yield None
            return
        records = _records(settings, store, "host-work")
        contracting = _Contracting(kind=HOST_TASKS, records=records, clock=clock)
        made = ContractedHostWorker(works, _contractors(works, contracting, store))
        with closing(made):
            yield made

    return make


def host_work_rules(settings: Settings) -> Sequence[HostWorkRule]:
    """Return which hosts have work, or refuse what the file says."""
    return read_host_work_rules(settings.executor_file)


def _executor(
    settings: Settings, make_contractor: Callable[[_Contracting], Contractor]
) -> Callable[[Store, Clock], AbstractContextManager[Executor]]:
    @contextmanager
    def make(store: Store, clock: Clock) -> Iterator[Executor]:
        def host_of(name: VmName) -> HostName | None:
            vm = store.read(lambda reading: reading.topology().virtual_machines.get(name))
            return vm.host if vm else None

        records = _records(settings, store, "impacts")
        contracting = _Contracting(kind=IMPACTS, records=records, clock=clock)
        executor = ContractedExecutor(make_contractor(contracting), host_of=host_of)
        with closing(executor):
            yield executor

    return make


def _records(settings: Settings, store: Store, folder: str) -> Records:
    return Records(
        settings.state_directory / folder, may_begin=lambda: store.read(find_pause) is None
    )


def _contractors(
    works: Sequence[HostWork], contracting: _Contracting, store: Store
) -> Sequence[Contractor]:
    """Return the contractors that *works* need: those for webhooks have threads of their own."""

    def host_of(name: HostName) -> Host:
        known = store.read(lambda reading: reading.topology().hosts.get(name))
        return known or Host(name=name)

    needed = {type(means) for work in works for means in work.means.values()}
    contractors = []
    if Command in needed:
        contractors.append(contracting.scripts(find_for_host(works, host_of, Command)))
    if Target in needed:
        contractors.append(contracting.webhooks(find_for_host(works, host_of, Target)))
    return contractors


def _search_path() -> str:
    return environment_with({}).get("PATH", "")
