"""The records of tasks in the state directory of a server, and whether they can be trusted.

Only one server uses a state directory. Each start raises the generation of its records, on disk
first and then in the database, and from then on only that start begins and ends its tasks.
"""

import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final

import structlog

from forewarn.bootstrap.start import StartError
from forewarn.domain.names import OperationId
from forewarn.domain.task import Owner
from forewarn.executors.task_log import TaskLog
from forewarn.operations.lineage import (
    continue_lineage,
    is_continued,
    read_lineage,
    record_lineage,
)
from forewarn.operations.tasks import lose_own_tasks
from forewarn.ports.store import Reading, Store, Transaction
from forewarn.protocol.vocabulary import EventId

log = structlog.get_logger()

FOLDER: Final = "tasks"

_BATCH: Final = 200
_MOST: Final = 10_000
"""After how many removals the rest has to wait for the next round."""
_LOST: Final = "the database was restored or the records of the server were lost"


class TaskRecords:
    """The records in the state *directory* of *node*, whose machine is called *name* now."""

    def __init__(self, directory: Path, store: Store, node: str, name: str) -> None:
        self._directory = directory / FOLDER
        self.log: Final = TaskLog(self._directory)
        self._store = store
        self._node = node
        self._name = name
        self._lineage_name = f"{FOLDER} on {node}"

    @property
    def name(self) -> str:
        """What the log calls them."""
        return FOLDER

    def begin(self, now: datetime) -> Owner:
        """Return the owner that this start of the server is."""
        try:
            with self.log.locked():
                return self._begin_locked(now)
        except OSError as error:
            sentence = f"Cannot store the records of tasks in {self._directory}: {error.strerror}."
            raise StartError(sentence) from error

    def remove_ended(self, before: datetime, *, pause: Callable[[], bool]) -> int:
        """Remove the records of what ended before then, and tell of how many that was.

        What the database does not know stays, and so does a script that still runs. Between
        batches it makes a *pause*, which tells whether that is all for now.
        """
        removed, is_prepared = 0, False
        subjects = self.log.subjects()
        while removed < _MOST and (batch := tuple(islice(subjects, _BATCH))):
            ended = self._store.read(partial(_find_ended, batch, before))
            is_prepared = is_prepared or (bool(ended) and self._prepare_removal())
            if ended and not is_prepared:
                break
            removed += sum(map(self.log.remove, ended))
            if pause():
                break
        return removed

    def _prepare_removal(self) -> bool:
        """Leave a trace by which the next start finds a database from before; tell if it is left.

        That database may have in flight what is over by now, and is about to have no records.
        """
        with self.log.locked():
            found = read_lineage(self.log.lineage())
            is_ours = self._store.read(
                lambda reading: is_continued(reading, self._lineage_name, found)
            )
            if found is None or not is_ours:
                return False
            # In this order a crash in between makes nothing doubtful.
            following = replace(found, generation=found.generation + 1)
            self.log.keep_lineage(following.encode())
            self._store.write(lambda tx: record_lineage(tx, self._lineage_name, following))
            self.log.keep_lineage(replace(following, removed_in=following.generation).encode())
            return True

    def _begin_locked(self, now: datetime) -> Owner:
        found = read_lineage(self.log.lineage())
        lineage, is_complete = self._store.read(
            lambda reading: continue_lineage(
                reading, self._lineage_name, found, new_id=uuid.uuid4().hex
            )
        )
        # Records ahead of the database are complete, records behind it are not. So those that are
        # complete come first, and others once nothing depends on them any more.
        if is_complete:
            self.log.keep_lineage(lineage.encode())
        else:
            self.log.forget_intents()
        owner = Owner(
            node=self._node,
            name=self._name,
            generation=lineage.generation,
            heard_at=now,
        )

        def work(tx: Transaction) -> None:
            record_lineage(tx, self._lineage_name, lineage)
            tx.put_owner(owner)
            if not is_complete:
                lose_own_tasks(tx, self._node, _LOST, now)

        self._store.write(work)
        if not is_complete:
            self.log.keep_lineage(lineage.encode())
            log.warning("task_records_incomplete", node=self._node)
        return owner


def _find_ended(batch: Sequence[str], before: datetime, reading: Reading) -> list[str]:
    ends = ((subject, _ended_at(reading, subject)) for subject in batch)
    return [subject for subject, moment in ends if moment is not None and moment < before]


def _ended_at(reading: Reading, subject: str) -> datetime | None:
    """Return when the event or host operation and all of its tasks had ended, if they have."""
    if any(not task.is_over for task in reading.tasks_of(subject)):
        return None
    event = reading.event(EventId(subject))
    if event is not None:
        return None if event.is_in_flight else event.ended_at
    operation = reading.host_operation(OperationId(subject))
    return operation.ended_at if operation is not None and operation.is_over else None
