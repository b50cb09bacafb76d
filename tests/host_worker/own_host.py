"""A host that fetches its work, in this process: the real loop on a real store, without HTTP."""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.executors.host_work import WORK

from forewarn.clocks import SystemClock
from forewarn.domain.errors import ConflictError, NotFoundError
from forewarn.domain.host_operation import HostOperation, HostPhase
from forewarn.domain.host_work import HostTask, HostTaskKind
from forewarn.domain.impact import Impact, ImpactStatus
from forewarn.domain.names import HostName
from forewarn.domain.task import Task
from forewarn.executors.command import Command
from forewarn.executors.configuration import FetchedByHost
from forewarn.executors.processes import ProcessRunner
from forewarn.executors.task_log import TaskLog
from forewarn.feed.upstream import UpstreamRefusedError
from forewarn.host_worker.fetcher import Exchange, WorkFetcher
from forewarn.host_worker.restarts import scripts_of_boot
from forewarn.operations.context import Context
from forewarn.operations.tasks import (
    OFFERS,
    find_fetched_tasks,
    report_fetched_task,
    take_task,
)
from forewarn.ports.store import Store, StoreUnavailableError
from forewarn.protocol.vocabulary import event_id
from forewarn.storage.sqlite import open_sqlite

HOST = HostName("kvm-0")


def put_operation(store: Store, task: HostTask, phase: HostPhase = HostPhase.WORK) -> None:
    """Have the operation of *task* under way."""
    began = datetime(2026, 1, 5, 8, tzinfo=UTC)
    operation = HostOperation(
        operation_id=task.operation_id,
        maintenance_id=task.maintenance_id,
        event_type=task.event_type,
        host=task.host,
        created_at=began,
        phase=phase,
        ended_at=began if phase is HostPhase.OVER else None,
    )
    store.write(lambda tx: tx.put_operation(operation))


def reserve(store: Store, task: HostTask = WORK, *, epoch: int = 1) -> Task:
    """Have *task* reserved for its host, as the leader does."""
    assigned = FetchedByHost().assign(task)
    assert assigned.node is not None
    row = Task(
        subject=task.operation_id,
        name=task.name,
        host=task.host,
        runner=assigned.runner,
        node=assigned.node,
        epoch=epoch,
        said=assigned.said,
        reserved_at=SystemClock().now(),
        details=assigned.details,
    )
    store.write(lambda tx: tx.put_task(row))
    return row


def known(store: Store, task: HostTask = WORK) -> Task:
    """Return how far *task* is, as the server knows it."""
    row = store.read(lambda reading: reading.task((task.operation_id, task.name)))
    assert row is not None
    return row


@dataclass(slots=True)
class Routes:
    """What the routes of a server do, for the token of one host.

    While it *is_away* it answers nothing; of those that are *lost* it does what is asked, and the
    answer does not arrive. What is to happen once *after* it was asked for something is done before
    that answer arrives.
    """

    store: Store
    host: HostName = HOST
    is_away: bool = False
    lost: set[str] = field(default_factory=set)
    refusal: int = 0
    asked: list[str] = field(default_factory=list)
    after: dict[str, Callable[[], object]] = field(default_factory=dict)

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        verb = path.rpartition("/")[2]
        self.asked.append(verb)
        if self.is_away:
            raise StoreUnavailableError("away")
        if self.refusal:
            raise UpstreamRefusedError(self.refusal, "No.")
        answer = None
        if method == "POST":
            self._answer(path, body)
        else:
            answer = self._tasks()
        self.after.pop(verb, int)()
        if verb in self.lost:
            self.lost.discard(verb)
            raise StoreUnavailableError("lost")
        return answer

    def _tasks(self) -> Any:
        tasks = self.store.read(lambda reading: find_fetched_tasks(reading, self.host))
        return {
            "tasks": [
                {
                    "name": task.name,
                    "status": OFFERS[task.state],
                    "order": {**task.details["order"], "epoch": task.epoch},
                }
                for task in tasks
            ]
        }

    def _answer(self, path: str, body: Any) -> None:
        _, operation_id, task, verb = path.split("/")
        key = operation_id, task
        now = SystemClock().now()
        context = Context(who="relay", now=now, at=now, new_id=lambda: event_id(f"{1:032x}"))
        try:
            if verb == "take":
                self.store.write(lambda tx: take_task(tx, context, self.host, key, body))
                return
            host = body.get("host")
            said = Impact(status=ImpactStatus(body["status"]), reason=body["reason"], moved_to=host)
            self.store.write(lambda tx: report_fetched_task(tx, context, self.host, key, said))
        except NotFoundError as error:
            raise UpstreamRefusedError(404, str(error)) from error
        except ConflictError as error:
            raise UpstreamRefusedError(409, str(error)) from error


@dataclass(slots=True)
class OwnHost:
    """A host with *commands* for tasks and a disk at *folder*; `boot` is the process on it."""

    store: Store
    folder: Path
    commands: Mapping[HostTaskKind, Command]
    routes: Routes = field(init=False)
    boot_id: str = "boot-1"
    restarts_host: bool = False

    def __post_init__(self) -> None:
        self.routes = Routes(self.store)

    @property
    def records(self) -> TaskLog:
        return TaskLog(self.folder / "host-work")

    @contextmanager
    def process(self, ticket: str = "ticket-of-process") -> Iterator[WorkFetcher]:
        """Give a loop that the caller turns."""
        runner = ProcessRunner(
            lambda task: self.commands.get(task.kind) if task.kind else None,
            scripts_of_boot(self.boot_id, restarts_host=self.restarts_host),
            log=self.records,
            environment={"PATH": "/usr/bin:/bin"},
            clock=SystemClock(),
        )
        with closing(runner):
            yield WorkFetcher(
                exchange=Exchange(server=self.routes, ticket=ticket),
                runner=runner,
                records=self.records,
                boot_id=self.boot_id,
                chance=lambda: 0.5,
                every=0.0,
            )

    @contextmanager
    def working(self) -> Iterator[None]:
        """Have it work on a thread meanwhile."""
        stopping = threading.Event()

        def work(fetcher: WorkFetcher) -> None:
            while not stopping.wait(0.01):
                fetcher.round()

        with self.process() as fetcher:
            thread = threading.Thread(target=work, args=(fetcher,))
            thread.start()
            try:
                yield
            finally:
                stopping.set()
                thread.join(60)


@contextmanager
def store_with(task: HostTask, folder: Path) -> Iterator[Store]:
    """Open a store in *folder* whose leader is at work on *task*."""
    opened = open_sqlite(folder / "forewarn.db")
    opened.write(lambda tx: tx.next_epoch())
    put_operation(opened, task)
    yield opened
    opened.close()
