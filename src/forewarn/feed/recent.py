"""What has changed of late, for followers that come back after a short while."""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from forewarn.domain.names import ScopeId, VmName
from forewarn.domain.topology import Topology, VirtualMachine
from forewarn.feed.host_index import host_key

MOST_REMEMBERED: Final = 10_000
"""How many changes are remembered; whoever has missed more is told everything."""

Stay: TypeAlias = tuple[str | None, ScopeId]
"""A host, if there is one, and a scope that a virtual machine has there."""


@dataclass(frozen=True, slots=True)
class Trace:
    """That something changed: a virtual machine, with where it was and is, or else a scope."""

    name: VmName | None
    stays: tuple[Stay, ...]

    @property
    def scope_ids(self) -> tuple[ScopeId, ...]:
        return tuple(scope_id for _, scope_id in self.stays)


def trace_scope(scope_id: ScopeId) -> Trace:
    """Return that a scope or its document changed."""
    return Trace(None, ((None, scope_id),))


def trace_vm(before: VirtualMachine | None, after: VirtualMachine | None) -> Trace:
    """Return that a virtual machine, which is *before* or *after*, changed."""
    known = tuple(vm for vm in (before, after) if vm is not None)
    return Trace(known[0].name, tuple((host_key(vm.host), vm.scope_id) for vm in known))


def trace(before: Topology, after: Topology, scope_ids: Sequence[ScopeId]) -> Iterator[Trace]:
    """Yield all that differs between two fleets, and documents of *scope_ids*."""
    revision = after.revision_of(before)
    scopes = (*scope_ids, *revision.put.scopes, *revision.gone.scopes)
    yield from map(trace_scope, dict.fromkeys(scopes))
    for name in (*revision.put.virtual_machines, *revision.gone.virtual_machines):
        yield trace_vm(before.virtual_machines.get(name), after.virtual_machines.get(name))


class Recent:
    """The last changes by their sequence; *floor* is the last one that is forgotten."""

    def __init__(self, most: int = MOST_REMEMBERED) -> None:
        self._most = most
        self._traces: deque[tuple[int, Trace]] = deque()
        self.floor = 0

    def add(self, sequence: int, traces: Sequence[Trace]) -> None:
        """Remember *traces*, and forget the oldest if there are too many."""
        if len(traces) > self._most:
            self.forget(sequence)
            return
        self._traces.extend((sequence, each) for each in traces)
        while len(self._traces) > self._most:
            self.floor, _ = self._traces.popleft()

    def forget(self, sequence: int) -> None:
        """Forget all up to *sequence*, which is the last."""
        self._traces.clear()
        self.floor = sequence

    def since(self, sequence: int) -> Iterator[Trace]:
        """Yield what came after *sequence*, which is not before the floor."""
        return (each for number, each in self._traces if number > sequence)
