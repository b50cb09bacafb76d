"""The faults that people have set, in memory: they are for testing and end with the process.

Rules of this file: what readers look at is replaced, never altered, so that they need no lock;
whoever replaces it holds the lock.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from threading import Lock
from typing import Final

from forewarn.domain.fault import Fault, FaultKind
from forewarn.domain.names import VmName
from forewarn.domain.publication import FIRST_DOCUMENT
from forewarn.ports.changes import StoreChange
from forewarn.ports.clock import Clock
from forewarn.protocol.document import Document

JUMP: Final = 2**31
"""By how much `incarnation-jump` raises the number: as a signed one of 32 bits it is negative."""


@dataclass(slots=True, kw_only=True, eq=False, repr=False)
class MemoryFaults:
    """Faults by virtual machine. It is one of the `Faults`, and a listener of the store.

    *document_of* returns what a virtual machine's scope is shown, or nothing if there is no such
    machine; *changed* is called when a fault was set or removed.
    """

    document_of: Callable[[VmName], Document | None]
    clock: Clock
    changed: Callable[[], None]
    _changing: Lock = field(init=False, default_factory=Lock)
    _by_vm: Mapping[VmName, "_Misbehaviour"] = field(init=False, default_factory=dict)

    def all(self) -> Mapping[VmName, tuple[Fault, ...]]:
        """Return every fault with the times it has left, by virtual machine."""
        return {
            vm: tuple(known.faults[kind] for kind in FaultKind if kind in known.faults)
            for vm, known in self._by_vm.items()
        }

    def put(self, vm: VmName, fault: Fault) -> None:
        """Set a fault; it replaces one of the same kind."""
        with self._changing:
            known = self._by_vm.get(vm, _WELL_BEHAVED)
            document = self.document_of(vm) or FIRST_DOCUMENT
            after = known.with_fault(fault, document, self.clock.now())
            self._by_vm = {**self._by_vm, vm: after}
        self.changed()

    def remove(self, vm: VmName, kind: FaultKind | None = None) -> None:
        """Behave again: end *vm*'s fault of *kind*, or every one it has."""
        with self._changing:
            self._drop(vm, tuple(FaultKind) if kind is None else (kind,))
        self.changed()

    def note(self, _: StoreChange) -> None:
        """Remember what was published, and forget who has left. The board hears of it first."""
        if not self._by_vm:
            return
        with self._changing:
            now = self.clock.now()
            self._by_vm = {
                vm: known.with_publication(document, now)
                for vm, known in self._by_vm.items()
                if (document := self.document_of(vm)) is not None
            }

    def __contains__(self, vm: object) -> bool:
        return vm in self._by_vm

    def take(self, vm: VmName, kind: FaultKind) -> Fault | None:
        """Return *vm*'s fault of *kind*, if it has one, for one request: that uses it up."""
        with self._changing:
            return self._use_up(vm, kind)

    def show(self, vm: VmName, document: Document) -> Document:
        """Return what *vm* sees instead of *document*, the current one of its scope, for a poll."""
        with self._changing:
            shown = self._by_vm.get(vm, _WELL_BEHAVED).show(document, self.clock.now())
            self._use_up(vm, FaultKind.STALE)
            return shown

    def _use_up(self, vm: VmName, kind: FaultKind) -> Fault | None:
        known = self._by_vm.get(vm, _WELL_BEHAVED)
        fault = known.faults.get(kind)
        if fault is None or fault.times is None:
            return fault
        if fault.times == 1:
            self._drop(vm, (kind,))
        else:
            faults = {**known.faults, kind: replace(fault, times=fault.times - 1)}
            self._by_vm = {**self._by_vm, vm: replace(known, faults=faults)}
        return fault

    def _drop(self, vm: VmName, kinds: Collection[FaultKind]) -> None:
        after = self._by_vm.get(vm, _WELL_BEHAVED).without(kinds)
        others = {other: known for other, known in self._by_vm.items() if other != vm}
        self._by_vm = {**others, vm: after} if after.faults else others


@dataclass(frozen=True, slots=True, kw_only=True)
class _Publication:
    at: datetime
    document: Document


@dataclass(frozen=True, slots=True, kw_only=True)
class _Misbehaviour:
    """The faults of one virtual machine, and what has to be remembered for them.

    *counted_from* is the incarnation that is shown as 0, and *stale* the document that is shown
    whatever is published. *published* are the documents since there is a publish delay: the one
    that is seen first, then those it holds back.
    """

    faults: Mapping[FaultKind, Fault] = field(default_factory=dict)
    counted_from: int = 0
    stale: Document | None = None
    published: tuple[_Publication, ...] = ()

    def with_fault(self, fault: Fault, document: Document, now: datetime) -> "_Misbehaviour":
        after = replace(self, faults={**self.faults, fault.kind: fault})
        if fault.kind is FaultKind.INCARNATION_RESET:
            return replace(after, counted_from=self._seen(document, now).document_incarnation)
        if fault.kind is FaultKind.STALE:
            return replace(after, stale=self._visible(document, now))
        if fault.kind is FaultKind.PUBLISH_DELAY:
            # What is seen already stays, however long the delay is from now on.
            published = self._not_past(now) or (_Publication(at=now, document=document),)
            return replace(after, published=published)
        return after

    def without(self, kinds: Collection[FaultKind]) -> "_Misbehaviour":
        return replace(
            self,
            faults={kind: fault for kind, fault in self.faults.items() if kind not in kinds},
            counted_from=0 if FaultKind.INCARNATION_RESET in kinds else self.counted_from,
            stale=None if FaultKind.STALE in kinds else self.stale,
            published=() if FaultKind.PUBLISH_DELAY in kinds else self.published,
        )

    def with_publication(self, document: Document, now: datetime) -> "_Misbehaviour":
        if not self.published or self.published[-1].document == document:
            return self
        latest = _Publication(at=now, document=document)
        return replace(self, published=(*self._not_past(now), latest))

    def show(self, document: Document, now: datetime) -> Document:
        seen = self._seen(document, now)
        incarnation = seen.document_incarnation - self.counted_from
        if FaultKind.INCARNATION_JUMP in self.faults:
            incarnation += JUMP
        return replace(seen, document_incarnation=incarnation)

    def _seen(self, document: Document, now: datetime) -> Document:
        return self._visible(document, now) if self.stale is None else self.stale

    def _visible(self, document: Document, now: datetime) -> Document:
        published = self._not_past(now)
        return published[0].document if published else document

    def _not_past(self, now: datetime) -> tuple[_Publication, ...]:
        delay = self.faults.get(FaultKind.PUBLISH_DELAY)
        if delay is None:
            return ()
        visible_since = now - timedelta(seconds=delay.seconds or 0)
        visible = [number for number, at in enumerate(self.published) if at.at <= visible_since]
        return self.published[visible[-1] if visible else 0 :]


_WELL_BEHAVED: Final = _Misbehaviour()
