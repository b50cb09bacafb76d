"""The records of orders in a state directory, and which orders may have begun without one.

Records that were lost, or are older than the database, do not tell. Neither do those here of what
a replica with other files has reserved: it may have begun it, and its records are elsewhere.
"""

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final

import structlog

from forewarn.bootstrap.node import machine_of
from forewarn.bootstrap.start import StartError
from forewarn.clocks import SystemClock
from forewarn.domain.host_operation import task_called
from forewarn.domain.knowledge import Undertaking
from forewarn.domain.names import OperationId, VmName
from forewarn.executors.host_tasks import HOST_TASKS
from forewarn.executors.impacts import IMPACTS
from forewarn.executors.orders import OrderKind
from forewarn.executors.records import OrderKey, Records
from forewarn.operations.lineage import (
    continue_lineage,
    is_continued,
    is_from_backup,
    is_in_doubt,
    read_lineage,
    record_lineage,
)
from forewarn.operations.pausing import find_pause, may_begin
from forewarn.ports.store import Reading, Store
from forewarn.protocol.vocabulary import EventId

log = structlog.get_logger()

_BATCH: Final = 200
_MOST: Final = 10_000
"""After how many removals the rest has to wait for the next round."""

_LOST: Final = (
    "the database was restored or the executor's records were lost after the announcement, so "
    "the impact may have begun;"
)
_BEHIND: Final = (
    "the executor's records were lost, or another server uses a copy of them, so the impact may "
    "have begun;"
)
_ELSEWHERE: Final = "replica {name} may have begun the impact; make {name} the leader again, or"
_NEARBY: Final = "another replica on {name} may have begun the impact; make it the leader again, or"
_BEFORE: Final = "a server with another state directory may have begun the impact;"


@dataclass(frozen=True, slots=True, kw_only=True)
class Orders:
    """Orders of one kind: the folder of their records, and how to find one that is under way.

    *find* returns what was reserved before it began, and since when it can have been begun.
    *ended_at* says when what they are about has ended, if it has.
    """

    kind: OrderKind
    folder: str
    find: Callable[[Reading, OrderKey], tuple[Undertaking, datetime] | None]
    ended_at: Callable[[Reading, str], datetime | None]


def _find_impact(reading: Reading, key: OrderKey) -> tuple[Undertaking, datetime] | None:
    event_id, vm = EventId(key[0]), VmName(key[1])
    event = reading.event(event_id)
    return ((event_id, vm), event.created_at) if event else None


def _find_task(reading: Reading, key: OrderKey) -> tuple[Undertaking, datetime] | None:
    under_way = reading.operations_under_way()
    operation = next((each for each in under_way if each.operation_id == key[0]), None)
    return (task_called(key[1], operation), operation.created_at) if operation else None


def _end_of_event(reading: Reading, subject: str) -> datetime | None:
    event = reading.event(EventId(subject))
    return None if event is None or event.is_in_flight else event.ended_at


def _end_of_operation(reading: Reading, subject: str) -> datetime | None:
    operation = reading.host_operation(OperationId(subject))
    return operation.ended_at if operation is not None and operation.is_over else None


IMPACT_ORDERS: Final = Orders(
    kind=IMPACTS, folder="impacts", find=_find_impact, ended_at=_end_of_event
)
HOST_ORDERS: Final = Orders(
    kind=HOST_TASKS, folder="host-work", find=_find_task, ended_at=_end_of_operation
)


class OrderRecords:
    """The records of *orders* in a state *directory*, on the node of *store*."""

    def __init__(self, orders: Orders, directory: Path, store: Store) -> None:
        self._orders = orders
        self._directory = directory / orders.folder
        self._store = store
        node = store.node
        # Those of a server with a store of its own had no name when they were the only ones.
        self._name = f"{orders.folder} on {node}" if node else orders.folder
        self._continue_lineage()

    @property
    def kind(self) -> OrderKind:
        """What orders these are."""
        return self._orders.kind

    def for_scripts(self) -> Records:
        """Return the records of what only this machine knows."""
        return self._records(lambda *order: self._lost(*order) or self._elsewhere(*order))

    def for_webhooks(self) -> Records:
        """Return the records of what may be told again: targets know whom they were told by."""
        return self._records(self._lost)

    @property
    def name(self) -> str:
        """What the folder is called."""
        return self._orders.folder

    def remove_ended(self, before: datetime, *, pause: Callable[[], bool]) -> int:
        """Remove the records of what ended before then, and tell of how many that was.

        What the database does not know stays, and so does what somebody still attends to. Between
        batches it makes a *pause*, which tells whether that is all for now.
        """
        records, removed, is_prepared = Records(self._directory), 0, False
        subjects = records.subjects()
        while removed < _MOST and (batch := tuple(islice(subjects, _BATCH))):
            ended = self._store.read(partial(self._find_ended, batch, before))
            is_prepared = is_prepared or (bool(ended) and self._prepare_removal(records))
            if ended and not is_prepared:
                break
            removed += sum(map(records.remove, ended))
            if pause():
                break
        return removed

    def _find_ended(self, batch: Sequence[str], before: datetime, reading: Reading) -> list[str]:
        ends = ((subject, self._orders.ended_at(reading, subject)) for subject in batch)
        return [subject for subject, moment in ends if moment is not None and moment < before]

    def _prepare_removal(self, records: Records) -> bool:
        """Leave a trace by which the next start finds a database from before; tell if it is left.

        That database may have in flight what is over by now, and is about to have no records.
        """
        with records.locked():
            found = read_lineage(records.lineage())
            is_continued_here = self._store.read(
                lambda reading: is_continued(reading, self._name, found)
            )
            if found is None or not is_continued_here:
                return False
            # In this order a crash in between makes nothing doubtful.
            following = replace(found, generation=found.generation + 1)
            records.keep_lineage(following.encode())
            self._store.write(
                lambda tx: record_lineage(tx, self._name, following, doubt_until=None)
            )
            records.keep_lineage(replace(following, removed_in=following.generation).encode())
            return True

    def _records(self, find_doubt: Callable[[Reading, Undertaking, datetime], str]) -> Records:
        def doubt(key: OrderKey) -> str:
            def look(reading: Reading) -> str:
                order = self._orders.find(reading, key)
                return "" if order is None else find_doubt(reading, *order)

            return self._store.read(look)

        return Records(
            self._directory,
            may_begin=lambda: self._store.read(find_pause) is None,
            permit=lambda epoch: self._store.write(lambda tx: may_begin(tx, epoch)),
            doubt=doubt,
            epoch=lambda: self._store.read(lambda reading: reading.lease_epoch()),
        )

    def _lost(self, reading: Reading, _about: Undertaking, made_at: datetime) -> str:
        if is_in_doubt(reading, self._name, made_at):
            return _LOST
        found = read_lineage(Records(self._directory).lineage())
        return "" if is_continued(reading, self._name, found) else _BEHIND

    def _elsewhere(self, reading: Reading, about: Undertaking, made_at: datetime) -> str:
        node, own = reading.reserved_on(about), self._store.node
        if own and is_from_backup(reading, made_at):
            return _LOST  # with the reservations of other nodes, however good the records here are
        if node is None or node == own:
            return ""
        name = machine_of(node)
        if not name:  # it had the database to itself
            return _BEFORE
        return (_NEARBY if name == machine_of(own) else _ELSEWHERE).format(name=name)

    def _continue_lineage(self) -> None:
        records = Records(self._directory)
        try:
            with records.locked():
                is_complete = self._continue_locked(records)
        except OSError as error:
            sentence = f"Cannot store executor records in {self._orders.folder}/: {error.strerror}."
            raise StartError(sentence) from error
        if not is_complete:
            log.warning("executor_records_incomplete", records=self._orders.folder)

    def _continue_locked(self, records: Records) -> bool:
        found = read_lineage(records.lineage())
        lineage, is_complete = self._store.read(
            lambda reading: continue_lineage(reading, self._name, found, new_id=uuid.uuid4().hex)
        )
        # First on disk: records ahead of the database are complete, records behind it are not.
        records.keep_lineage(lineage.encode())
        doubt_until = None if is_complete else SystemClock().now()
        self._store.write(
            lambda tx: record_lineage(tx, self._name, lineage, doubt_until=doubt_until)
        )
        return is_complete
