"""What a large fleet costs: the start of a server, its memory, and a cycle of one event.

A cycle is what happens to one event in the life of an operator: it is scheduled, approved by the
virtual machine, started by the server and completed. It should cost the same in any fleet. After
that, Maintenances are walked in virtual time over fleets of three sizes; the cost of each virtual
machine should be nearly the same. So should what it costs to explain a Maintenance by host. At last
operators ask for that, and for pages of the console. `--whole` takes the sizes of the targets; the
default does not.
"""

import gc
import http.client
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median
from typing import Final

from clusters import durable_cluster
from servers import Server, running, scheduled_events, wait_until
from smoke import new_parser, run, sized

from forewarn.domain.course import Course
from forewarn.domain.maintenance import MaintenanceOrder
from forewarn.domain.names import HostName, MaintenanceId, VmName
from forewarn.domain.roles import Role
from forewarn.domain.topology import (
    DeliveryScope,
    Host,
    ScopeKind,
    Topology,
    VirtualMachine,
)
from forewarn.files.fleet import read_fleet
from forewarn.operations.access import TokenOrder, create_token
from forewarn.operations.explain import explain_maintenance
from forewarn.operations.maintenances import report_maintenance, start_maintenance
from forewarn.protocol.vocabulary import EventId, EventType
from forewarn.storage.postgres import open_postgres
from forewarn.storage.sqlite import open_sqlite
from forewarn.testing.engine import Engine, start_engine
from forewarn.testing.handles import EmulatedClock

SCOPE_SIZE: Final = 50
HOST_SIZE: Final = 20
SMALL: Final = sized(1_000, smoke=50)
DEFAULT: Final = sized(100_000, smoke=200)
WHOLE: Final = 1_000_000
CYCLES: Final = sized(60, smoke=2)
ROUNDS: Final = sized(5, smoke=1)
START_TARGET: Final = 30.0
MEMORY_TARGET: Final = 1024
CYCLE_TARGET: Final = 1.2
WALKS: Final = sized((1_000, 10_000), smoke=(40, 80))
WHOLE_WALKS: Final = (1_000, 10_000, 50_000)
WALK_TARGET: Final = 2.0
WALK_SET: Final = 20
EXPLAINED: Final = sized((1_000, 10_000), smoke=(40, 80))
EXPLAINED_HOST: Final = sized(50, smoke=10)
EXPLAIN_TARGET: Final = 1.2
EXPLAIN_ROUNDS: Final = sized(5, smoke=1)
SHOWN_HOSTS: Final = sized(60, smoke=2)
SHOWN_HOST: Final = sized(60, smoke=5)
SHOWN_TARGET: Final = 1.0
SECRET: Final = "fw_bench"  # noqa: S105
START: Final = datetime(2027, 1, 4, tzinfo=UTC)
LONGEST: Final = timedelta(days=7)
VM: Final = "vm-0000017"
PARTS: Final = ("sqlite", "postgresql", "walk", "explain", "pages")


def main() -> None:
    """Print the figures beside their targets."""
    parser = new_parser(__doc__)
    parser.add_argument("--whole", action="store_true", help="measure at the sizes of the targets")
    parser.add_argument("--vms", type=int, help="how many virtual machines the large fleet has")
    parser.add_argument("--only", choices=PARTS, help="only this part")
    options = parser.parse_args()
    vms = options.vms or (WHOLE if options.whole else DEFAULT)
    if vms != WHOLE:
        print(f"{vms} VMs in place of the target's {WHOLE}; bench/scale.py --whole takes them all")
    parts: tuple[Callable[[], None], ...] = (
        lambda: _compare_on_sqlite(vms),
        lambda: _compare_on_postgresql(vms),
        lambda: _walk_all(WHOLE_WALKS if options.whole else WALKS),
        _explain_all,
        _show_all,
    )
    for name, part in zip(PARTS, parts, strict=True):
        if options.only in {None, name}:
            part()


def _compare_on_sqlite(vms: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _compare("sqlite", vms, folder, lambda each: f"sqlite:///{folder}/{each}.db")


def _compare_on_postgresql(vms: int) -> None:
    with tempfile.TemporaryDirectory() as name, durable_cluster() as cluster:
        if cluster is not None:
            _compare("postgresql", vms, Path(name), lambda _: cluster.empty_database())


@dataclass(frozen=True, slots=True)
class Cycle:
    """What one cycle costs, in milliseconds: as waited for, and as the server worked for it."""

    waited: float
    worked: float


def _compare(engine: str, vms: int, folder: Path, new_url: Callable[[int], str]) -> None:
    servers: dict[int, Server] = {}
    with ExitStack() as stack:
        for size in (SMALL, vms):
            url = new_url(size)
            filled = fill(url, describe(size))
            server = Server(folder=folder / str(size), database=url)
            stack.enter_context(running(server))
            started = server.wait_for(scheduled_events(VM))
            _cycle(server)
            each = server.resident_bytes() / size
            servers[size] = server
            print(
                f"{engine}, {size} VMs in {size // SCOPE_SIZE} scopes: filled in {filled:.1f} s, "
                f"serving {started:.1f} s after start"
                + (f" (target {START_TARGET:.0f} s), " if size != SMALL else ", ")
                + f"{each:.0f} bytes resident per VM"
                + (f" (target {MEMORY_TARGET})" if size != SMALL else ""),
                flush=True,
            )
        # In turns, so that whatever else the machine does hits both alike.
        cycles = {size: list[Cycle]() for size in servers}
        for _ in range(ROUNDS):
            for size, server in servers.items():
                cycles[size].append(_measure(server))
    small, large = (_middle(cycles[size]) for size in (SMALL, vms))
    ratio = large.waited / small.waited
    print(
        f"{engine}, a cycle of one event: {small.waited:.1f} ms in {SMALL} VMs and "
        f"{large.waited:.1f} ms in {vms} VMs, {ratio:.2f} times (target {CYCLE_TARGET} times); "
        f"of the server's CPU {small.worked:.1f} and {large.worked:.1f} ms, "
        f"{large.worked / small.worked:.2f} times",
        flush=True,
    )


def fill(url: str, topology: Topology) -> float:
    """Put a fleet into a new database; return how many seconds it took."""
    began = time.perf_counter()
    path = url.removeprefix("sqlite:///")
    store = open_postgres(url) if path == url else open_sqlite(Path(path))
    change = store.read(lambda reading: reading.prepare_topology(topology))
    store.write(lambda tx: tx.put_topology(topology, change))
    store.close()
    return time.perf_counter() - began


def describe(size: int, *, network: int = 10) -> Topology:
    """Return a fleet in availability sets, each machine with what a real one has."""
    scopes = [
        DeliveryScope(kind=ScopeKind.AVAILABILITY_SET, name=f"set-{number:05}")
        for number in range(size // SCOPE_SIZE)
    ]
    vms = [
        VirtualMachine(
            name=VmName(f"vm-{number:07}"),
            scope_id=scopes[number // SCOPE_SIZE].scope_id,
            update_domain=number % 5,
            fault_domain=number % 2,
            host=HostName(f"host-{number // HOST_SIZE:05}"),
            addresses=(address_of(number, network),),
            vm_id=f"602d9444-d2cd-49c7-8624-{number:012x}",
            zone=str(number % 3),
            location="north",
        )
        for number in range(size)
    ]
    # Nobody has to check it.
    return Topology(
        virtual_machines={vm.name: vm for vm in vms},
        scopes={scope.scope_id: scope for scope in scopes},
        hosts={vm.host: Host(name=vm.host) for vm in vms if vm.host},
    )


def address_of(number: int, network: int) -> str:
    """Return the address of a machine in *network*, the first of the four numbers."""
    return f"{network}.{number >> 16}.{number >> 8 & 255}.{number & 255}"


def _measure(server: Server) -> Cycle:
    gc.collect()
    before = server.cpu_seconds()
    times = [_cycle(server) for _ in range(CYCLES)]
    worked = (server.cpu_seconds() - before) / CYCLES
    return Cycle(median(times) * 1000, worked * 1000)


def _middle(cycles: list[Cycle]) -> Cycle:
    return Cycle(median(each.waited for each in cycles), median(each.worked for each in cycles))


def _cycle(server: Server) -> float:
    began = time.perf_counter()
    event_id = server.create("Reboot", VM)
    server.approve(VM, event_id)

    def is_started() -> bool:
        return any(each["EventStatus"] == "Started" for each in server.poll(VM)["Events"])

    wait_until(is_started, f"{event_id} does not start", 60)
    server.operate("POST", f"events/{event_id}/complete")
    return time.perf_counter() - began


def _walk_all(sizes: tuple[int, ...]) -> None:
    costs = {size: _walk(size) for size in sizes}
    figures = ", ".join(f"{cost * 1000:.2f} ms at {size}" for size, cost in costs.items())
    ratio = costs[sizes[-1]] / costs[sizes[0]]
    print(
        f"a walk, per VM: {figures}; {ratio:.2f} times (target {WALK_TARGET:.0f} times)", flush=True
    )


def _walk(size: int) -> float:
    sets = size // WALK_SET
    engine = start_engine({"executor": "simulated"}, read_fleet(_describe_sets(sets)), START)
    try:
        order = MaintenanceOrder(
            event_type=EventType.FREEZE,
            scopes=tuple(f"set-{number}" for number in range(sets)),
            course=Course(hold_all=False),
        )
        began = time.perf_counter()
        started = engine.write(lambda tx, context: start_maintenance(tx, context, order))
        EmulatedClock(engine).advance(LONGEST)
        taken = time.perf_counter() - began
        context = engine.replica.context("bench")
        report = engine.read(
            lambda reading: report_maintenance(reading, context, started.maintenance_id)
        )
        done = sum(len(event.resources) for event in report.events if event.ended_at)
        if done != size:
            raise SystemExit(f"{done} of {size} virtual machines were walked over")
    finally:
        engine.close()
    return taken / size


def _explain_all() -> None:
    costs = {size: _explain(size) for size in EXPLAINED}
    figures = ", ".join(f"{cost * 1e6:.1f} µs at {size}" for size, cost in costs.items())
    ratio = costs[EXPLAINED[-1]] / costs[EXPLAINED[0]]
    print(
        f"explain, of the CPU per VM, without garbage collection: {figures}; {ratio:.2f} times "
        f"(target {EXPLAIN_TARGET} times)",
        flush=True,
    )


def _explain(size: int) -> float:
    engine, maintenance_id, _ = _announce(size // EXPLAINED_HOST, EXPLAINED_HOST)
    try:
        context = engine.replica.context("bench")

        def measure() -> float:
            gc.collect()
            gc.disable()  # a full collection looks at the whole process, and falls now and then
            began = time.process_time()
            engine.read(lambda reading: explain_maintenance(reading, context, maintenance_id))
            taken = time.process_time() - began
            gc.enable()
            return taken

        return min(measure() for _ in range(EXPLAIN_ROUNDS)) / size
    finally:
        engine.close()


def _show_all() -> None:
    """Ask as operators do, while every machine of every host is announced."""
    engine, maintenance_id, event_id = _announce(SHOWN_HOSTS, SHOWN_HOST)
    try:
        token = TokenOrder(name="bench", role=Role.ADMIN)
        engine.write(lambda tx, context: create_token(tx, context, token, SECRET))
        connection = http.client.HTTPConnection("127.0.0.1", engine.control_port(), timeout=600)
        headers = {"Authorization": f"Bearer {SECRET}"}

        def ask(method: str, path: str) -> float:
            began = time.process_time()
            connection.request(method, path, headers=headers)
            answer = connection.getresponse()
            content = answer.read()
            if answer.status not in {200, 204}:
                raise SystemExit(f"{method} {path}: {answer.status} {content[:1000].decode()}")
            headers["Cookie"] = answer.headers.get("Set-Cookie", headers.get("Cookie", ""))
            return time.process_time() - began

        ask("POST", "/login")
        pages = ("", "fleet", "timeline", "maintenances", f"maintenances/{maintenance_id}")
        paths = [f"/api/v1/maintenances/{maintenance_id}/explain", f"/events/{event_id}"]
        taken = {path: ask("GET", path) for path in (*paths, *(f"/{page}" for page in pages))}
        slowest = max(taken, key=taken.__getitem__)
        print(
            f"{SHOWN_HOSTS * SHOWN_HOST} VMs on {SHOWN_HOSTS} hosts, of the CPU: explain "
            f"{taken[paths[0]]:.2f} s; slowest of {len(taken)} answers {taken[slowest]:.2f} s, "
            f"{slowest} (target {SHOWN_TARGET:.0f} s)",
            flush=True,
        )
        connection.close()
    finally:
        engine.close()


def _announce(hosts: int, machines: int) -> tuple[Engine, MaintenanceId, EventId]:
    """Start a server in which a Maintenance has announced all *hosts*, each with so many VMs."""
    vms = [
        {"name": f"vm-{host}-{number}", "host": f"host-{host}"}
        for host in range(hosts)
        for number in range(machines)
    ]
    fleet = read_fleet({"virtual_machine": vms})
    engine = start_engine({"executor": "simulated"}, fleet, START)
    order = MaintenanceOrder(
        event_type=EventType.REBOOT,
        hosts=tuple(f"host-{host}" for host in range(hosts)),
        course=Course(at_once=hosts),
    )
    begun = engine.write(lambda tx, context: start_maintenance(tx, context, order))
    events = engine.read(lambda reading: reading.events_in_flight())
    if len(events) != hosts * machines:
        raise SystemExit(f"{len(events)} of {hosts * machines} virtual machines were announced")
    return engine, begun.maintenance_id, events[0].event_id


def _describe_sets(sets: int) -> dict[str, object]:
    vms = ((number, index) for number in range(sets) for index in range(WALK_SET))
    return {
        "availability_set": [{"name": f"set-{number}"} for number in range(sets)],
        "virtual_machine": [
            {"name": f"vm-{number}-{index}", "availability_set": f"set-{number}"}
            for number, index in vms
        ],
    }


if __name__ == "__main__":
    run(main)
