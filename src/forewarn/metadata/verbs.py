"""What virtual machines ask for, carried out on the store."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TypeVar

from forewarn.domain.errors import UnknownEventError
from forewarn.domain.names import HostName, VmName
from forewarn.domain.topology import VirtualMachine, is_on
from forewarn.operations.approvals import event_in_scope, postpone_from_vm, request_starts
from forewarn.operations.context import Context
from forewarn.operations.views import describe_event
from forewarn.ports.entries import Actor
from forewarn.ports.store import Reading, Store, Transaction
from forewarn.ports.verbs import Receipt
from forewarn.protocol.vocabulary import EventId

T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class StoreVerbs:
    """What the metadata endpoint has done on behalf of a virtual machine.

    In virtual time it has to *settle* what is due then, before it answers. Whoever asks on behalf
    of the machines of one *host* finds no others.
    """

    store: Store
    context: Callable[[str], Context]
    settle: Callable[[], None] | None = None
    host: HostName | None = None

    async def request_start(
        self, vm: VmName, event_ids: tuple[EventId, ...], *, where: str
    ) -> Receipt:
        """Take *vm*'s StartRequests."""

        def work(tx: Transaction) -> Receipt:
            scope_id = self._find(tx, vm, *event_ids).scope_id
            request_starts(tx, self._asked(vm, where), vm, event_ids)
            number = tx.document(scope_id).document_incarnation
            return Receipt(scope_id=scope_id, document_incarnation=number)

        return await self._write(work)

    async def describe_event(self, vm: VmName, event_id: EventId) -> dict[str, object]:
        """Return what became of an event of *vm*'s scope."""

        def look(reading: Reading) -> dict[str, object]:
            self._find(reading, vm, event_id)
            return describe_event(event_in_scope(reading, vm, event_id), reading.ledger(event_id))

        return await asyncio.to_thread(self.store.read, look)

    async def postpone(
        self, vm: VmName, event_id: EventId, not_before: datetime, *, where: str
    ) -> dict[str, object]:
        """Postpone an event of *vm*'s scope."""

        def work(tx: Transaction) -> dict[str, object]:
            self._find(tx, vm, event_id)
            event = postpone_from_vm(tx, self._asked(vm, where), vm, event_id, not_before)
            return describe_event(event, tx.ledger(event_id))

        return await self._write(work)

    def _find(self, reading: Reading, vm: VmName, *event_ids: EventId) -> VirtualMachine:
        """Return who asks; if it has left, or is elsewhere, there is no event for it."""
        known = reading.topology().virtual_machines.get(vm)
        if known is None or not is_on(known, self.host):
            raise UnknownEventError(*event_ids[:1] or (EventId(""),))
        return known

    def _asked(self, vm: VmName, where: str) -> Context:
        return replace(self.context(vm), where=where, actor=Actor.VIRTUAL_MACHINE)

    async def _write(self, work: Callable[[Transaction], T]) -> T:
        result = await asyncio.wrap_future(self.store.submit(work))
        if self.settle is not None:
            await asyncio.to_thread(self.settle)
        return result
