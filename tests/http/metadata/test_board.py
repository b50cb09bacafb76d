"""The board by itself: what it shows, and what it shares."""

import asyncio
from time import perf_counter

import pytest
from tests.http.metadata.conftest import TIMEOUT

from forewarn.domain.names import ScopeId, VmName
from forewarn.domain.topology import Topology, VirtualMachine, standalone
from forewarn.metadata.board import Board
from forewarn.ports.board import Posting
from forewarn.protocol.document import Document, Event
from forewarn.protocol.versions import VERSIONS_BY_NAME
from forewarn.protocol.vocabulary import EventStatus, EventType, event_id

SCOPE = ScopeId("virtual-machine/a")
GONE = ScopeId("virtual-machine/gone")
VM = VirtualMachine(name=VmName("a"), scope_id=SCOPE)


def test_late_change_does_not_bring_back_an_older_document() -> None:
    shown = Board()
    shown.put_up({SCOPE: Document(document_incarnation=7)})
    shown.put_up({SCOPE: Document(document_incarnation=6)})

    assert shown.page(VM, "2020-07-01").etag == b"7"


def test_versions_that_look_alike_share_their_bytes() -> None:
    shown = Board()
    event = Event(
        event_id=event_id("x"),
        event_status=EventStatus.SCHEDULED,
        event_type=EventType.REBOOT,
        resources=("a",),
    )
    shown.put_up({SCOPE: Document(document_incarnation=1, events=(event,))})

    pages = {name: shown.page(VM, name) for name in VERSIONS_BY_NAME}

    assert pages["2017-08-01"] is pages["2019-01-01"]
    assert len({id(page) for page in pages.values()}) == 5


def test_fleet_is_shown_as_it_was_last_told() -> None:
    shown = Board()
    topology = Topology(virtual_machines={VM.name: VM}, scopes={}, hosts={})

    shown.put_up({}, topology)

    assert shown.topology is topology


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
    shown = Board()

    began = perf_counter()
    shown.put_up(documents, Topology(virtual_machines=vms, scopes=scopes, hosts={}))
    learning = perf_counter() - began
    began = perf_counter()
    shown.put_up({SCOPE: Document(document_incarnation=1)})

    assert learning < 30, "far more than ten times what it takes"
    assert perf_counter() - began < learning / 2, "a document does not rebuild the indexes"
    found = shown.vm_at("10.1.134.159")
    assert found is not None
    assert found.name == "vm-99999"


def test_listener_is_told_what_was_put_up_when_it_is_shown() -> None:
    shown = Board()
    topology = Topology(virtual_machines={VM.name: VM}, scopes={}, hosts={})
    heard: list[tuple[Posting, bytes]] = []
    shown.listen(lambda posting: heard.append((posting, shown.page(VM, "2020-07-01").etag)))

    shown.put_up({SCOPE: Document(document_incarnation=2)}, topology)
    shown.put_up({SCOPE: Document(document_incarnation=1)})
    shown.put_up({}, is_everything=True)

    assert heard == [
        (Posting(scope_ids=(SCOPE,), topology=topology), b"2"),
        (Posting(topology=topology), b"2"),
        (Posting(scope_ids=(SCOPE,), topology=topology), b"0"),
    ]


def part(shown: Board, *vms: VirtualMachine, incarnation: int = 0) -> None:
    """Put up *vms*, and an empty document for each."""
    document = Document(document_incarnation=incarnation)
    printed = {vm.scope_id: (document, shown.print(document)) for vm in vms}
    shown.put(printed, {vm.scope_id: standalone(vm.name) for vm in vms}, vms)


def machine(name: str, *addresses: str, vm_id: str = "", scope: str = "") -> VirtualMachine:
    return VirtualMachine(
        name=VmName(name),
        scope_id=ScopeId(f"virtual-machine/{scope or name}"),
        addresses=addresses,
        vm_id=vm_id,
    )


def test_machine_that_is_put_up_in_a_part_is_known_by_everything() -> None:
    shown = Board()
    vm = machine("A", "10.0.0.1", "FD00:0::1", "fe80::1", vm_id="ID")

    part(shown, vm, incarnation=3)

    assert shown.vm_named("a") is shown.vm_with_id("id") is shown.vm_at("fd00::1") is vm
    assert shown.vm_at("fe80::1") is None
    assert shown.page(vm, "2020-07-01").etag == b"3"
    assert shown.delivery_scope(vm) == standalone(vm.name)
    assert shown.parts == ((vm,), {vm.scope_id: standalone(vm.name)})


def test_part_does_not_bring_back_an_older_document() -> None:
    shown = Board()
    part(shown, VM, incarnation=3)
    part(shown, VM, incarnation=2)

    assert shown.page(VM, "2020-07-01").etag == b"3"


def test_machine_that_is_removed_is_known_by_nothing() -> None:
    shown = Board()
    vm = machine("a", "10.0.0.1", vm_id="id")
    part(shown, vm, incarnation=3)

    shown.remove([vm.name], [vm.scope_id])
    shown.remove([vm.name], [vm.scope_id])  # hears it twice

    assert shown.vm_named("a") is shown.vm_with_id("id") is shown.vm_at("10.0.0.1") is None
    assert shown.page(vm, "2020-07-01").etag == b"0"
    assert shown.parts == ((), {})


def test_machine_keeps_what_it_has_taken_over_when_the_old_one_goes() -> None:
    shown = Board()
    old, new = machine("old", "10.0.0.1", vm_id="id"), machine("new", "10.0.0.1", vm_id="id")
    part(shown, old)

    part(shown, new)
    shown.remove([old.name])

    assert shown.vm_at("10.0.0.1") is shown.vm_with_id("id") is new


def test_machine_that_is_spelled_otherwise_stays_when_the_old_spelling_goes() -> None:
    shown = Board()
    part(shown, machine("A"))

    part(shown, machine("a"))
    shown.remove([VmName("A")])

    found = shown.vm_named("a")
    assert found is not None
    assert found.name == "a"


def test_machine_that_is_changed_loses_its_old_address() -> None:
    shown = Board()
    part(shown, machine("a", "10.0.0.1"))

    part(shown, machine("a", "10.0.0.2"))

    assert shown.vm_at("10.0.0.1") is None
    assert shown.vm_at("10.0.0.2") == machine("a", "10.0.0.2")


def test_only_those_wake_whom_a_part_concerns() -> None:
    shown = Board()
    a, b = machine("a"), machine("b")
    part(shown, a, b)

    async def park() -> list[str]:
        woken: list[str] = []
        is_woken = asyncio.Event()

        async def wait(vm: VirtualMachine) -> None:
            def where() -> ScopeId | None:
                known = shown.vm_named(vm.name)
                is_same = known is not None and known.scope_id == vm.scope_id
                return vm.scope_id if is_same else None

            await shown.waiters.wait(where, until=asyncio.Event(), seconds=TIMEOUT)
            woken.append(vm.name)
            is_woken.set()

        async with asyncio.TaskGroup() as group:
            waits = [group.create_task(wait(vm)) for vm in (a, b)]
            await asyncio.sleep(0)
            part(shown, machine("a", scope="other"))
            await asyncio.wait_for(is_woken.wait(), TIMEOUT)
            assert woken == ["a"]
            shown.remove([b.name])
        assert all(each.done() for each in waits)
        return woken

    assert asyncio.run(park()) == ["a", "b"]


@pytest.mark.parametrize(("later", "is_shown"), [(3, True), (4, True), (2, False)])
def test_document_is_waited_for_until_it_or_a_later_one_is_shown(
    later: int, *, is_shown: bool
) -> None:
    shown = Board()
    part(shown, VM, incarnation=1)

    async def wait() -> bool:
        seconds = TIMEOUT if is_shown else 0.2
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(shown.await_document(SCOPE, 3, seconds))
            await asyncio.sleep(0.01)
            part(shown, VM, incarnation=later)
        return await waiting

    assert asyncio.run(wait()) is is_shown


def test_document_that_is_shown_is_not_waited_for() -> None:
    shown = Board()
    part(shown, VM, incarnation=3)

    assert asyncio.run(shown.await_document(SCOPE, 3, 0))
