"""What it costs to change one virtual machine of a large fleet, while others write.

One is added, changed and removed, again and again, through one server on SQLite and through one of
two replicas on PostgreSQL. It is told how long the request takes, how long until the other replica
serves the machine, how long somebody else waits for the lock that whoever writes has, and how long
other writes take meanwhile, at each replica. `--whole` takes the size of the targets.
"""

import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

import psycopg
from clusters import durable_cluster
from scale import DEFAULT, SCOPE_SIZE, VM, WHOLE, describe, fill
from servers import Server, replicas_in, running, scheduled_events, wait_until
from smoke import new_parser, run, sized

ROUNDS: Final = sized(5, smoke=1)
SECONDS: Final = 120.0
PAUSE_SECONDS: Final = 0.05
ANSWER_TARGET: Final = 2.0
SERVED_TARGET: Final = 2.0
LOCK_TARGET: Final = 0.5
OTHERS_TARGET: Final = 1.0
LOCK: Final = "SELECT FROM write_lock WHERE name = 'writer' FOR UPDATE"


@dataclass(slots=True)
class Figures:
    """The times of everything that was done, in seconds."""

    answers: dict[str, list[float]] = field(default_factory=dict)
    served: list[float] = field(default_factory=list)
    locked: list[float] = field(default_factory=list)
    others: list[float] = field(default_factory=list)
    alone: list[float] = field(default_factory=list)


def main() -> None:
    """Print the figures beside their targets."""
    parser = new_parser(__doc__)
    parser.add_argument("--whole", action="store_true", help="measure at the size of the targets")
    parser.add_argument("--vms", type=int, help="how many virtual machines the fleet has")
    parser.add_argument("--only", choices=("sqlite", "postgresql"), help="only this engine")
    options = parser.parse_args()
    vms = options.vms or (WHOLE if options.whole else DEFAULT)
    if options.only in {None, "sqlite"}:
        with tempfile.TemporaryDirectory() as name:
            _measure("sqlite", vms, Path(name), f"sqlite:///{name}/forewarn.db", replicas=1)
    if options.only in {None, "postgresql"}:
        with tempfile.TemporaryDirectory() as name, durable_cluster() as cluster:
            if cluster is not None:
                _measure("postgresql", vms, Path(name), cluster.empty_database(), replicas=2)


def _measure(engine: str, vms: int, folder: Path, url: str, *, replicas: int) -> None:
    fill(url, describe(vms))
    servers = replicas_in(folder, url, replicas)
    figures = Figures()
    with ExitStack() as stack:
        for server in servers:
            # The first makes the admin token of all.
            stack.enter_context(running(server))
            server.wait_for(scheduled_events(VM))
            wait_until(server.is_ready, "it does not start", SECONDS, pause=0.05)
        _change(servers, Figures(), rounds=1)
        with _writing(servers, figures.alone):
            time.sleep(ROUNDS)
        with ExitStack() as meanwhile:
            meanwhile.enter_context(_writing(servers, figures.others))
            if engine == "postgresql":
                meanwhile.enter_context(_repeating(partial(_lock, url), figures.locked))
            _change(servers, figures, rounds=ROUNDS)
    _print(f"{engine}, {vms} VMs in {vms // SCOPE_SIZE} scopes, {replicas} servers", figures)


def _change(servers: Sequence[Server], figures: Figures, *, rounds: int) -> None:
    first, last = servers[0], servers[-1]
    for number in range(rounds):
        vm = f"new-{number}"
        order = {"name": vm, "availability_set": "set-00000", "host": "host-00000"}
        began = time.perf_counter()
        _time(figures, "add", partial(first.operate, "POST", "virtual-machines", order))
        wait_until(partial(last.serves, vm), f"{vm} is not served", SECONDS, pause=0.01)
        figures.served.append(time.perf_counter() - began)
        _time(figures, "change", partial(first.operate, "PATCH", f"virtual-machines/{vm}", ZONE))
        began = time.perf_counter()
        _time(figures, "remove", partial(first.operate, "DELETE", f"virtual-machines/{vm}"))
        wait_until(lambda: not last.serves(vm), f"{vm} is still served", SECONDS, pause=0.01)  # noqa: B023
        figures.served.append(time.perf_counter() - began)
    for verb in ("close", "open"):
        _time(figures, f"{verb} a host", partial(first.operate, "POST", f"hosts/host-00001/{verb}"))
    change_set = partial(first.operate, "PATCH", "scopes/availability-set/set-00001")
    for notice in ("20m", None):
        _time(figures, "change a set", partial(change_set, {"notice": notice}))


ZONE: Final = {"zone": "2"}


def _time(figures: Figures, what: str, deed: Callable[[], object]) -> None:
    began = time.perf_counter()
    deed()
    figures.answers.setdefault(what, []).append(time.perf_counter() - began)


@contextmanager
def _writing(servers: Sequence[Server], times: list[float]) -> Iterator[None]:
    """Announce and cancel events at each server, over connections of its own."""
    with ExitStack() as stack:
        for number, server in enumerate(servers):
            another = server.as_another()
            stack.callback(another.hang_up)
            stack.enter_context(_repeating(partial(_write, another, f"vm-{number:07}"), times))
        yield


def _write(server: Server, vm: str) -> None:
    event_id = server.create("Reboot", vm)
    server.operate("POST", f"events/{event_id}/cancel")


def _lock(url: str) -> None:
    with psycopg.connect(url) as connection:
        connection.execute(LOCK)


@contextmanager
def _repeating(deed: Callable[[], None], times: list[float]) -> Iterator[None]:
    """Do *deed* on a thread of its own while the block runs, and note how long each time took."""
    is_over = threading.Event()

    def run() -> None:
        while not is_over.wait(PAUSE_SECONDS):
            began = time.perf_counter()
            deed()
            times.append(time.perf_counter() - began)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def _print(title: str, figures: Figures) -> None:
    print(title)
    rows = [(what, times, ANSWER_TARGET) for what, times in figures.answers.items()]
    rows += [
        ("until the last server has it", figures.served, SERVED_TARGET),
        ("wait for the write lock", figures.locked, LOCK_TARGET),
        ("two other writes meanwhile", figures.others, OTHERS_TARGET),
        ("the same without", figures.alone, OTHERS_TARGET),
    ]
    for what, times, target in rows:
        if times:
            usual = sorted(times)[len(times) // 2]
            print(
                f"  {what:<30}{usual * 1000:>8.0f} ms, at most {max(times) * 1000:.0f} ms "
                f"(target {target * 1000:.0f} ms)",
                flush=True,
            )


if __name__ == "__main__":
    run(main)
