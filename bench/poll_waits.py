"""How long virtual machines wait: for a change, and while others keep the server busy.

While a fleet is applied, they poll a relay beside the server: it shares its core with nobody but
them. The server and whoever applies the fleet have the other core.
"""

import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import median, quantiles
from typing import Final

from goals import Row
from loads import ASKING, SERVED, Pollers, Target, nginx, pinned, read_answer
from local_ports import free_port
from scale import address_of, describe, fill
from servers import (
    PROGRAM,
    Server,
    cpu_seconds,
    resident_bytes,
    running,
    scheduled_events,
    wait_until,
)
from smoke import sized

from forewarn.domain.names import HostName
from forewarn.domain.topology import Host, Topology

ROUNDS: Final = sized(5, smoke=1)
APPLIES: Final = sized(3, smoke=1)
PARKED: Final = sized(10_000, smoke=100)
APPLIED: Final = sized(100_000, smoke=1_000)
APPLY_GOAL: Final = 1.5
PARKED_GOAL: Final = 250
GUESTS: Final = 50
RELAY_HOST: Final = "kvm-1"
RELAY_SECONDS: Final = sized(30.0, smoke=0.3)
RELAY_MEMORY_GOAL: Final = 40
RELAY_CPU_GOAL: Final = 0.5
_SETTLED_SECONDS: Final = sized(3.0, smoke=0.0)
"""Until a process does no more than it will go on doing."""
START_SECONDS: Final = 300.0
VM: Final = "vm-0000001"
EMPTY: Final = b'{"DocumentIncarnation":0,"Events":[]}'
"""What the guests of the relay read, and nginx serves beside it."""


def measure_parked(_: float, __: int) -> Iterator[Row]:
    """Have polls wait for one document, change it, and time when each has its answer."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        url = f"sqlite:///{folder}/forewarn.db"
        fill(url, _in_one_set(describe(PARKED)))
        server = Server(folder=folder / "state", database=url, before=pinned(SERVED))
        with running(server):
            server.wait_for(scheduled_events(VM))
            times = median(_wait_for_changes(server))
    yield Row(
        f"{PARKED:,} waiting polls, from commit to last byte, p99",
        f"≤ {PARKED_GOAL} ms",
        f"{times * 1000:.0f} ms, counted from the request that commits",
        times * 1000 <= PARKED_GOAL,
    )


def _wait_for_changes(server: Server) -> Iterator[float]:
    """Yield the 99th percentile of each change, in seconds."""
    waiting = {"If-None-Match": "0", "Prefer": "wait=300", "Metadata": "true"}
    paths = (scheduled_events(f"vm-{number:07}") for number in range(PARKED))
    targets = (
        Target(port=server.metadata_port, pids=(), path=path, headers=waiting) for path in paths
    )
    order = {
        "seconds": 0,
        "sources": [address_of(1 + number, 127) for number in range(PARKED)],
        "requests": [target.request() for target in targets],
    }
    with Pollers.running("park", server.metadata_port, order) as pollers:
        for number in range(ROUNDS):
            pollers.hear()
            time.sleep(1)  # until the last of them is parked
            began = time.monotonic()
            server.create("Freeze", f"vm-{number:07}", not_before="2h")
            yield quantiles((at - began for at in pollers.hear()["answered"]), n=100)[98]


def _in_one_set(fleet: Topology) -> Topology:
    scope_id, scope = next(iter(fleet.scopes.items()))
    vms = {name: replace(vm, scope_id=scope_id) for name, vm in fleet.virtual_machines.items()}
    return Topology(virtual_machines=vms, scopes={scope_id: scope}, hosts=fleet.hosts)


def measure_apply(seconds: float, _: int) -> Iterator[Row]:
    """Poll a relay beside the server, while nothing happens and while a fleet is applied."""
    what = f"p99 poll time during a {APPLIED:,}-VM apply, relay with {GUESTS} VMs"
    goal = f"≤ {APPLY_GOAL} x idle"
    fleet = _with_host(describe(APPLIED, network=127))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        url = f"sqlite:///{folder}/forewarn.db"
        fill(url, fleet)
        files = [_write_fleet(folder, fleet, zone) for zone in ("8", "9")]
        server = Server(folder=folder / "state", database=url, before=pinned(SERVED))
        with running(server), _relay(server, folder, core=ASKING) as (_, target):
            quiet, busy = zip(
                *(
                    _poll_meanwhile(server, target, files[turn % 2], seconds)
                    for turn in range(APPLIES)
                ),
                strict=True,
            )
    idle, applying = median(quiet) * 1000, median(busy) * 1000
    yield Row(
        what,
        goal,
        f"{applying / idle:.2f} x idle ({applying:.2f} and {idle:.2f} ms)",
        applying <= APPLY_GOAL * idle,
    )


def measure_relay(_: float, __: int) -> Iterator[Row]:
    """Look what a relay takes whose guests poll once a second."""
    sources = [address_of(1 + number, 127) for number in range(GUESTS)]
    fleet = _with_host(describe(2 * GUESTS, network=127))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        url = f"sqlite:///{folder}/forewarn.db"
        fill(url, fleet)
        server = Server(folder=folder / "state", database=url, before=pinned(ASKING))
        with running(server), _relay(server, folder, core=SERVED) as (pid, target):
            order = {
                "seconds": RELAY_SECONDS,
                "sources": sources,
                "requests": [target.request()],
            }
            each, kept = _shares(target, order)
            memory = resident_bytes(pid) / 2**20
            with nginx(folder / "nginx", EMPTY) as beside:
                their_each, their_kept = _shares(beside, order)
    yield Row(
        f"relay, {GUESTS} VMs that poll once a second",
        f"≤ {RELAY_MEMORY_GOAL} MiB, ≤ {RELAY_CPU_GOAL} % of a core",
        f"{memory:.1f} MiB, {kept:.2f} % with keep-alive, {each:.2f} % with new connections "
        f"(nginx {their_kept:.2f} % and {their_each:.2f} %)",
        memory <= RELAY_MEMORY_GOAL and max(kept, each) <= RELAY_CPU_GOAL,
    )


def _shares(target: Target, order: Mapping[str, object]) -> Iterator[float]:
    """Yield how many hundredths of a core polls take: with a connection each, and on kept ones."""
    for kind in ("seldom", "seldom on kept"):
        with Pollers.running(kind, target.port, order) as pollers:
            pollers.hear()
            before = cpu_seconds(*target.pids)
            taken: float = pollers.hear()["seconds"]
            yield (cpu_seconds(*target.pids) - before) / taken * 100


@contextmanager
def _relay(server: Server, folder: Path, *, core: int) -> Iterator[tuple[int, Target]]:
    """Run a relay of *server* on *core*."""
    wait_until(server.is_ready, "it does not start", START_SECONDS, pause=0.05)
    token = folder / "relay.token"
    token.touch(mode=0o600)
    made = server.operate("POST", "tokens", {"name": "relay", "role": "relay", "host": RELAY_HOST})
    token.write_text(made["secret"])
    port = free_port()
    flags = {
        "--server": f"http://127.0.0.1:{server.control_port}",
        "--token-file": str(token),
        "--metadata": f"127.0.0.1:{port}",
        "--state-dir": str(folder / "relay"),
        "--log-level": "warning",
    }
    words = (word for pair in flags.items() for word in pair)
    process = subprocess.Popen(pinned(core, *PROGRAM, "relay", *words))  # noqa: S603
    try:
        target = Target(port=port, pids=(process.pid,), headers={"Metadata": "true"})
        read_answer(target)  # it answers 503 until it has its copy
        time.sleep(_SETTLED_SECONDS)
        yield process.pid, target
    finally:
        process.terminate()
        process.wait(timeout=30)


def _with_host(fleet: Topology) -> Topology:
    """Return *fleet* with the host of the relay, and its guests there."""
    host = Host(name=HostName(RELAY_HOST))
    guests = tuple(fleet.virtual_machines.values())[1 : 1 + GUESTS]
    vms = {vm.name: replace(vm, host=host.name) for vm in guests}
    return Topology(
        virtual_machines={**fleet.virtual_machines, **vms},
        scopes=fleet.scopes,
        hosts={**fleet.hosts, host.name: host},
    )


def _poll_meanwhile(
    server: Server, target: Target, file: Path, seconds: float
) -> tuple[float, float]:
    """Return the 99th percentiles before and during an apply, in seconds."""
    sources = [address_of(1 + number, 127) for number in range(GUESTS)]
    order = {"seconds": 0, "sources": sources, "requests": [target.request()]}
    with Pollers.running("pace", target.port, order) as pollers:
        pollers.hear()
        time.sleep(seconds)
        began = time.monotonic()
        _apply(server, file)
        ended = time.monotonic()
        pollers.tell("stop")
        heard = pollers.hear()
    polls = list(zip(heard["began"], heard["times"], strict=True))
    return (
        _p99([time for at, time in polls if at < began]),
        _p99([time for at, time in polls if began <= at < ended]),
    )


def _apply(server: Server, file: Path) -> None:
    where = f"http://127.0.0.1:{server.control_port}"
    token = (server.folder / "admin.token").read_text().strip()
    variables = ("env", f"FOREWARN_SERVER={where}", f"FOREWARN_TOKEN={token}")
    words = (*variables, *PROGRAM, "fleet", "apply", str(file), "--yes")
    subprocess.run(pinned(SERVED, *words), check=True, stdout=subprocess.DEVNULL)  # noqa: S603


def _write_fleet(folder: Path, fleet: Topology, zone: str) -> Path:
    """Write a fleet file in which every virtual machine is in another zone."""
    file = folder / f"{zone}.toml"
    scopes = (f'[[availability_set]]\nname = "{each.name}"\n' for each in fleet.scopes.values())
    vms = (
        f'[[virtual_machine]]\nname = "{vm.name}"\nzone = "{zone}"\nvm_id = "{vm.vm_id}"\n'
        f'availability_set = "{fleet.scopes[vm.scope_id].name}"\nhost = "{vm.host}"\n'
        f'addresses = ["{vm.addresses[0]}"]\n'
        for vm in fleet.virtual_machines.values()
    )
    file.write_text("".join((*scopes, *vms)))
    return file


def _p99(times: Sequence[float]) -> float:
    return quantiles(times, n=100)[98]
