"""The board by itself: what it shows, what it shares, and how fast it learns a fleet."""

from time import perf_counter

import pytest

from forewarn.domain.names import ScopeId, VmName
from forewarn.domain.topology import Topology, VirtualMachine, standalone
from forewarn.metadata.board import Board
from forewarn.ports.changes import StoreChange
from forewarn.protocol.document import Document, Event
from forewarn.protocol.versions import PreviewWire, served_versions
from forewarn.protocol.vocabulary import EventStatus, EventType, event_id

SCOPE = ScopeId("virtual-machine/a")
VM = VirtualMachine(name=VmName("a"), scope_id=SCOPE)


def board() -> Board:
    return Board(served_versions(PreviewWire.DOCUMENTED))


def test_late_change_does_not_bring_back_an_older_document() -> None:
    shown = board()
    shown.take(StoreChange(documents={SCOPE: Document(document_incarnation=7)}))
    shown.take(StoreChange(documents={SCOPE: Document(document_incarnation=6)}))

    assert shown.page(VM, "2020-07-01").etag == b"7"


def test_versions_that_look_alike_share_their_bytes() -> None:
    shown = board()
    event = Event(
        event_id=event_id("x"),
        event_status=EventStatus.SCHEDULED,
        event_type=EventType.REBOOT,
        resources=("a",),
    )
    shown.take(StoreChange(documents={SCOPE: Document(document_incarnation=1, events=(event,))}))

    pages = {name: shown.page(VM, name) for name in shown.versions}

    assert pages["2017-08-01"] is pages["2019-01-01"]
    assert len({id(page) for page in pages.values()}) == 5


def test_fleet_is_shown_as_it_was_last_told() -> None:
    shown = board()
    topology = Topology(virtual_machines={VM.name: VM}, scopes={}, hosts={})

    shown.take(StoreChange(topology=topology))

    assert shown.topology is topology


@pytest.mark.no_cover  # to trace it takes as long as it may take
def test_fleet_of_100_000_is_learned_at_once() -> None:
    vms = {
        VmName(f"vm-{n}"): VirtualMachine(
            name=VmName(f"vm-{n}"),
            scope_id=ScopeId(f"virtual-machine/vm-{n}"),
            vm_id=f"id-{n}",
            addresses=(f"10.{n >> 16}.{n >> 8 & 255}.{n & 255}",),
        )
        for n in range(100_000)
    }
    scopes = {vm.scope_id: standalone(vm.name) for vm in vms.values()}
    documents = {scope_id: Document(document_incarnation=0) for scope_id in scopes}
    shown = board()

    began = perf_counter()
    shown.take(
        StoreChange(
            topology=Topology(virtual_machines=vms, scopes=scopes, hosts={}), documents=documents
        )
    )
    learning = perf_counter() - began
    began = perf_counter()
    shown.take(StoreChange(documents={SCOPE: Document(document_incarnation=1)}))

    assert learning < 10, "ten times what it takes"
    assert perf_counter() - began < 1, "a document does not rebuild the indexes"
    found = shown.vm_at("10.1.134.159")
    assert found is not None
    assert found.name == "vm-99999"
