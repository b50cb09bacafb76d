"""The journal of requests, in memory: it is for testing and ends with the process."""

from collections.abc import Iterable
from dataclasses import replace
from itertools import count
from operator import attrgetter
from threading import Lock
from typing import Final

from forewarn.domain.names import VmName
from forewarn.ports.clock import Clock, WallClock
from forewarn.ports.journal import JournalEntry

KEPT: Final = 1_000
"""How many requests of each virtual machine, and of unknown callers, are kept."""


class MemoryJournal:
    """The last requests of each virtual machine. It is one of the `Journal`s."""

    def __init__(self, clock: Clock, wall: WallClock) -> None:
        self._clock = clock
        self._wall = wall
        self._changing = Lock()
        self._sequence = count(1)
        self._by_vm: dict[VmName | None, dict[int, JournalEntry]] = {}

    def begin(self, vm: VmName | None, method: str, path: str) -> JournalEntry:
        """Write down that a request has come, and return its entry."""
        with self._changing:
            entry = JournalEntry(
                sequence=next(self._sequence),
                vm=vm,
                at=self._wall.now(),
                maintenance_time=self._clock.now(),
                method=method,
                path=path,
            )
            self._keep(entry)
        return entry

    def end(self, entry: JournalEntry) -> None:
        """Put *entry*, which now says how it ended, in place of the one that has begun."""
        with self._changing:
            ended = replace(entry, seconds=max(0.0, (self._wall.now() - entry.at).total_seconds()))
            if entry.sequence in self._by_vm.get(None, {}):  # and who it was may be known now
                del self._by_vm[None][entry.sequence]
                self._keep(ended)
            elif entry.sequence in self._by_vm.get(entry.vm, {}):
                self._by_vm[entry.vm][entry.sequence] = ended

    def _keep(self, entry: JournalEntry) -> None:
        kept = self._by_vm.setdefault(entry.vm, {})
        kept[entry.sequence] = entry
        if len(kept) > KEPT:
            del kept[min(kept)]

    def requests_of(self, vm: VmName | None) -> tuple[JournalEntry, ...]:
        """Return the last requests of *vm*, or of unknown callers, in the order they came."""
        with self._changing:
            return _in_order(self._by_vm.get(vm, {}).values())

    def requests(self) -> tuple[JournalEntry, ...]:
        """Return everybody's last requests, in the order they came."""
        with self._changing:
            return _in_order(each for kept in self._by_vm.values() for each in kept.values())


def _in_order(entries: Iterable[JournalEntry]) -> tuple[JournalEntry, ...]:
    return tuple(sorted(entries, key=attrgetter("sequence")))
