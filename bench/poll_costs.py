"""CPU per poll: beside nginx, for every way to be known, and in fleets of two sizes."""

import hmac
import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from statistics import median
from typing import Final

from goals import Row
from loads import (
    PATH,
    SERVED,
    Figures,
    Target,
    drive_with_pollers,
    drive_with_wrk,
    nginx,
    pinned,
    read_answer,
)
from scale import address_of, describe, fill
from servers import START_SECONDS, Server, running, scheduled_events, wait_until
from smoke import sized

from forewarn.domain.topology import Topology

RUNS: Final = sized(5, smoke=1)
VM: Final = "vm-0000017"
VM_ID: Final = "602d9444-d2cd-49c7-8624-000000000011"
SECRET: Final = "of the proxy"  # noqa: S105 - of a server that lives for seconds
SOURCES: Final = tuple(f"127.0.0.{number}" for number in range(1, 17))
"""One would run out of ports: each connection that a client has closed keeps its own a minute."""
ADDRESSES: Final = sized(5_000, smoke=100)
FEW: Final = 10
KEPT_GOAL: Final = 0.7
EACH_GOAL: Final = 1.0
CALLERS_GOAL: Final = 15
SIZE_GOAL: Final = 10

Drive = Callable[[Target, float], Figures]


def measure_callers(seconds: float, _: int) -> Iterator[Row]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        targets = {
            caller: stack.enter_context(_served(folder / caller, caller)) for caller in CALLERS
        }
        body = read_answer(targets["address"])
        targets["nginx"] = stack.enter_context(nginx(folder / "nginx", body))
        if len({len(read_answer(target)) for target in targets.values()}) > 1:
            raise SystemExit("not all of them serve as many bytes")
        print(f"{len(body)} bytes; µs of CPU per poll, and polls per second", flush=True)
        by_itself = partial(_drive_from, "each", SOURCES)
        yield from _compare("keep-alive", KEPT_GOAL, drive_with_wrk, targets, seconds)
        yield from _compare(
            "new connection each, `Connection: close`",
            EACH_GOAL,
            drive_with_wrk,
            {name: _closing(target) for name, target in targets.items()},
            seconds,
        )
        yield from _compare(
            "new connection each, closed by the client", EACH_GOAL, by_itself, targets, seconds
        )


def _drive_from(kind: str, sources: Sequence[str], target: Target, seconds: float) -> Figures:
    return drive_with_pollers(kind, target, sources, seconds)


def _closing(target: Target) -> Target:
    return replace(target, headers={**target.headers, "Connection": "close"})


def _compare(
    what: str, goal: float, drive: Drive, targets: Mapping[str, Target], seconds: float
) -> Iterator[Row]:
    middle = _in_turns(drive, targets, seconds)
    figures = (f"{name} {each.cpu:.1f} ({each.rate:.0f}/s)" for name, each in middle.items())
    print(f"  {what}: {', '.join(figures)}", flush=True)
    # In a smoke run, so little was measured that the kernel may not have counted it yet.
    ours, theirs = middle["address"].cpu, middle["nginx"].cpu or 0.1
    yield Row(
        f"CPU per poll, {what}",
        f"≤ {goal} x nginx",
        f"{ours / theirs:.2f} x nginx ({ours:.1f} and {theirs:.1f} µs)",
        ours <= goal * theirs,
    )
    more = {name: _more(middle[name].cpu, ours) for name in CALLERS if name != "address"}
    yield Row(
        f"the same, VM identified by {', '.join(more)}",
        f"at most {CALLERS_GOAL} % more than by address",
        ", ".join(f"{percent:+.0f} %" for percent in more.values()),
        max(more.values()) <= CALLERS_GOAL,
    )


def _in_turns(drive: Drive, targets: Mapping[str, Target], seconds: float) -> Mapping[str, Figures]:
    """Drive each target in short slices that take turns; return the medians.

    Each round begins with another target: whoever comes after nginx finds caches full of it.
    """
    slices = {name: list[Figures]() for name in targets}
    names = deque(targets)
    for _ in range(RUNS):
        for name in names:
            slices[name].append(drive(targets[name], seconds))
        names.rotate(1)
    return {
        name: Figures(median(each.rate for each in all_), median(each.cpu for each in all_))
        for name, all_ in slices.items()
    }


def _more(value: float, than: float) -> float:
    return (value / than - 1) * 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """One way to be known: what the fleet and the settings say, what the caller sends."""

    addresses: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    before: tuple[str, ...] = ()
    path: str = PATH
    headers: Mapping[str, str] = field(default_factory=dict)


CALLERS: Final[Mapping[str, Caller]] = {
    "address": Caller(addresses=SOURCES),
    "path": Caller(flags=("--trust-path",), path=scheduled_events(VM)),
    "default": Caller(flags=("--default-vm", VM)),
    "signed header": Caller(
        flags=("--trusted-proxies", "127.0.0.0/8"),
        before=("env", f"FOREWARN_PROXY_SECRET={SECRET}"),
        headers={
            "X-Instance-ID": VM_ID,
            "X-Instance-ID-Signature": hmac.new(
                SECRET.encode(), VM_ID.encode(), sha256
            ).hexdigest(),
        },
    ),
}


@contextmanager
def _served(folder: Path, known_by: str) -> Iterator[Target]:
    """Run a server with one virtual machine, for which one event is scheduled."""
    caller = CALLERS[known_by]
    folder.mkdir()
    addresses = ", ".join(f'"{address}"' for address in caller.addresses)
    (folder / "fleet.toml").write_text(
        f'[[virtual_machine]]\nname = "{VM}"\nvm_id = "{VM_ID}"\naddresses = [{addresses}]\n'
    )
    server = Server(
        folder=folder,
        database=f"sqlite:///{folder}/forewarn.db",
        flags=("--fleet", str(folder / "fleet.toml"), *caller.flags),
        before=pinned(SERVED, *caller.before),
    )
    with running(server):
        target = Target(
            port=server.metadata_port,
            pids=(server.pid,),
            path=caller.path,
            headers={"Metadata": "true", **caller.headers},
        )
        wait_until(server.is_ready, "it does not start", START_SECONDS, pause=0.05)
        server.create("Reboot", VM, not_before="2h")
        yield target


# --- in fleets of two sizes ----------------------------------------------------------------------


def measure_sizes(seconds: float, vms: int) -> Iterator[Row]:
    """Poll from thousands of addresses: those of a few machines, then those of many."""
    step = vms // ADDRESSES
    sources = tuple(address_of(1 + number * step, 127) for number in range(ADDRESSES))
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        fleets = {FEW: _few(sources), vms: describe(vms, network=127)}
        targets = {
            str(size): stack.enter_context(_fleet_served(folder / str(size), fleet))
            for size, fleet in fleets.items()
        }
        del fleets
        for kind, what in (("kept", "keep-alive"), ("each", "new connection each")):
            middle = _in_turns(partial(_drive_from, kind, sources), targets, seconds)
            few, many = middle.values()
            percent = _more(many.cpu, few.cpu)
            yield Row(
                f"CPU per poll, {vms:,} VMs instead of {FEW}, {what}",
                f"at most {SIZE_GOAL} % more",
                f"{percent:+.1f} % ({few.cpu:.1f} → {many.cpu:.1f} µs)",
                percent <= SIZE_GOAL,
            )


def _few(sources: Sequence[str]) -> Topology:
    """Return a fleet of few machines, which have all the addresses."""
    fleet = describe(50)
    names = sorted(fleet.virtual_machines)[:FEW]
    vms = {
        name: replace(fleet.virtual_machines[name], addresses=tuple(sources[number::FEW]))
        for number, name in enumerate(names)
    }
    return Topology(virtual_machines=vms, scopes=fleet.scopes, hosts=fleet.hosts)


@contextmanager
def _fleet_served(folder: Path, fleet: Topology) -> Iterator[Target]:
    folder.mkdir()
    url = f"sqlite:///{folder}/forewarn.db"
    fill(url, fleet)
    server = Server(folder=folder, database=url, before=pinned(SERVED))
    with running(server):
        server.wait_for(scheduled_events("vm-0000001"))
        yield Target(port=server.metadata_port, pids=(server.pid,), headers={"Metadata": "true"})
