"""What clients see of replicas and relays that are killed, read by the checker of the simulation.

Only `make soak` runs this.
"""

import logging
import random
import signal
import threading
import time
from collections.abc import Generator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import psycopg
import pytest
from tests.e2e.conftest import START_SECONDS, Server, ServerMaker, wait_until
from tests.e2e.histories import Database, History, Reader, Source, check
from tests.e2e.replicas import Trio, make_replicas
from tests.e2e.test_relay_process import Relay, token_for
from tests.simulation.checker import Machine, Model

_log = logging.getLogger(__name__)

SPEED: Final = 60
NUMBER: Final = 30
"""How often something is killed, stopped or frozen."""
LONGEST_END: Final = 240.0
HOSTS: Final = ("kvm-0", "kvm-1", "kvm-2", "kvm-3")
RELAYED: Final = {"kvm-0": 0, "kvm-1": 1}
"""The hosts with a relay, and the replica that it follows."""
_UNFINISHED: Final = "SELECT count(*) FROM maintenances WHERE finished_at IS NULL"
EXECUTORS: Final = """
[[command]]
run = ["./run"]

[[host_work]]
labels = { cluster = "a" }
run = ["./run"]
verify = ["/bin/true"]
"""
SCRIPT: Final = """#!/bin/sh
echo "begin $TASK_ID $(date +%s.%N)" >> {folder}/witness
sleep 0.$(od -An -N1 -tu1 /dev/urandom | tr -d ' ')
echo "end $TASK_ID $(date +%s.%N)" >> {folder}/witness
"""


def make_fleet() -> tuple[str, Model]:
    """Return three sets of four machines in two update domains, on four hosts."""
    lines = [f'[[host]]\nname = "{host}"\nlabels = {{ cluster = "a" }}' for host in HOSTS]
    machines = {}
    approval = {}
    for number, policy in enumerate(("any", "all", "leader")):
        name, scope = f"set{number}", f"availability-set/set{number}"
        lines.append(
            f'[[availability_set]]\nname = "{name}"\nupdate_domains = 2\napproval = "{policy}"'
        )
        approval[scope] = policy
        for each, host in enumerate(HOSTS):
            vm = Machine(name=f"{name}-{each}", scope=scope, domain=each % 2, host=host)
            machines[vm.name] = vm
            lines.append(
                f'[[virtual_machine]]\nname = "{vm.name}"\navailability_set = "{name}"\n'
                f'update_domain = {vm.domain}\nhost = "{host}"\n'
                f'addresses = ["127.9.{number}.{each + 1}"]'
            )
    return "\n".join(lines), Model(machines=machines, approval=approval, speed=SPEED)


@dataclass(slots=True)
class ReplicaSource:
    """A replica, which may start anew at any moment."""

    number: int
    server: Server
    starts: int = 1

    @property
    def name(self) -> str:
        return f"replica {self.number}, start {self.starts}"

    def poll(self, vm: str) -> bytes:
        answer = self.server.poll(vm)
        if answer.status != 200:
            raise OSError(answer.status)
        return answer.body

    def approve(self, vm: str, event_id: str) -> bool:
        return self.server.approve(vm, event_id).status == 200


@dataclass(slots=True)
class RelaySource:
    """A relay, which knows its virtual machines by their addresses."""

    host: str
    relay: Relay
    starts: int = 1

    @property
    def name(self) -> str:
        return f"relay {self.host}, start {self.starts}"

    def poll(self, vm: str) -> bytes:
        status, body = self.relay.poll(int(vm[-1]) + 1, network=int(vm[3]))
        if status != 200:
            raise OSError(status)
        return body

    def approve(self, vm: str, event_id: str) -> bool:
        return self.relay.approve(event_id, int(vm[-1]) + 1, network=int(vm[3])) == 200


@dataclass(slots=True)
class Place:
    """Three replicas and two relays, and what clients have seen of them."""

    trio: Trio
    sources: list[ReplicaSource]
    relays: list[RelaySource]
    model: Model
    chance: random.Random
    history: History = field(default_factory=History)
    is_enough: threading.Event = field(default_factory=threading.Event)
    """Set when nothing more is started."""
    is_over: threading.Event = field(default_factory=threading.Event)

    def readers(self) -> list[Reader]:
        """Return a reader of every machine at each replica, and of each host at its relay."""
        places: list[tuple[Source, list[str]]] = [
            (source, [*self.model.machines]) for source in self.sources
        ]
        for relay in self.relays:
            here = [each.name for each in self.model.machines.values() if each.host == relay.host]
            places.append((relay, here))
        return [
            Reader(source, vms, self.history, random.Random(number))  # noqa: S311 - no secret
            for number, (source, vms) in enumerate(places)
        ]

    def operate(self) -> None:
        """Start one Maintenance after the other, wherever a replica answers."""
        while not self.is_enough.wait(0.5):
            server = self.chance.choice(self.sources).server
            try:
                if self.unfinished() < 2:
                    self._start(server)
            except OSError:
                continue

    def _start(self, server: Server) -> None:
        least = self.chance.choice((0, 50))
        order: dict[str, object] = {"event_type": "Reboot", "min_available": least}
        if self.chance.random() < 0.5:
            order["hosts"] = self.chance.sample(HOSTS, 2)
        else:
            order["scopes"] = self.chance.sample(("set0", "set1", "set2"), 2)
        answer = server.operate("POST", "maintenances", order)
        if answer.status == 201:
            key = answer.json()["maintenance_id"]
            self.model.min_available[key] = least
            self.history.write("starts", key)

    def unfinished(self) -> int:
        """Return how many Maintenances are not over."""
        with psycopg.connect(self.trio.url) as connection:
            row = connection.execute(_UNFINISHED).fetchone()
        return int(row[0]) if row else 0

    # What goes wrong.

    def disturb(self) -> None:
        """Kill, stop or freeze something, and bring it back."""
        time.sleep(self.chance.uniform(0.5, 4))
        what = self.chance.choice((self.kill, self.kill, self.restart, self.freeze, self.cut))
        what()

    def kill(self) -> None:
        source = self._some_server()
        source.server.kill()
        time.sleep(self.chance.uniform(0, 5))
        self._start_again(source)

    def restart(self) -> None:
        source = self._some_server()
        assert source.server.stop() == 0, source.server.said()
        self._start_again(source)

    def freeze(self) -> None:
        process = self._some_server().server.process
        assert process is not None
        process.send_signal(signal.SIGSTOP)
        time.sleep(self.chance.uniform(1, 8))
        process.send_signal(signal.SIGCONT)

    def cut(self) -> None:
        source = self.chance.choice(self.relays)
        source.relay.kill()
        time.sleep(self.chance.uniform(0, 2))
        source.starts += 1
        source.relay.start()

    def _some_server(self) -> ReplicaSource:
        """Return the leader, most often."""
        if self.chance.random() < 0.6:
            leader = self.trio.leader()
            return next(each for each in self.sources if each.server is leader)
        return self.chance.choice(self.sources)

    def _start_again(self, source: ReplicaSource) -> None:
        source.starts += 1
        source.server.start()


@pytest.fixture
def place(
    make_server: ServerMaker,
    postgres_url: str,
    tmp_path: Path,
    environment: Mapping[str, str],
) -> Generator[Place]:
    script = tmp_path / "run"
    script.write_text(SCRIPT.format(folder=tmp_path), encoding="utf-8")
    script.chmod(0o755)
    executors = tmp_path / "executors.toml"
    executors.write_text(EXECUTORS, encoding="utf-8")
    fleet, model = make_fleet()
    flags = ("--executor-file", str(executors), "--speed", str(SPEED))
    trio = make_replicas(make_server, postgres_url, tmp_path, *flags)
    (tmp_path / "fleet.toml").write_text(fleet, encoding="utf-8")
    for server in trio.servers:
        server.start()
    with ExitStack() as stack:
        relays = []
        for host, number in RELAYED.items():
            folder = tmp_path / host
            folder.mkdir()
            server = trio.servers[number]
            relay = Relay(
                folder=folder,
                environment=environment,
                server=f"http://127.0.0.1:{server.control_port}",
                token=token_for(server, name=host, role="relay", host=host),
            )
            stack.callback(relay.stop)
            relay.start()
            relays.append(RelaySource(host, relay))
        sources = [ReplicaSource(number, server) for number, server in enumerate(trio.servers)]
        yield Place(trio, sources, relays, model, random.Random(1))  # noqa: S311 - no secret


def test_histories_of_clients_hold_whatever_is_killed(place: Place, tmp_path: Path) -> None:
    readers = place.readers()
    with ThreadPoolExecutor(len(readers) + 1) as pool:
        reading = [pool.submit(each.read, place.is_over) for each in readers]
        operating = pool.submit(place.operate)
        try:
            for _ in range(NUMBER):
                place.disturb()
            place.is_enough.set()
            operating.result(START_SECONDS)
            wait_until(lambda: place.unfinished() == 0, "they do not end", LONGEST_END)
        finally:
            place.is_enough.set()
            place.is_over.set()
        for each in reading:
            each.result(START_SECONDS)
    place.history.add_tasks(tmp_path / "witness")

    with psycopg.connect(place.trio.url) as connection:
        checker = check(place.history, Database(connection), place.model)

    counts = {what: place.history.count(what) for what in ("starts", "begin", "approves", "shown")}
    _log.info("%d disturbances, %d leaders: %s", NUMBER, place.trio.epoch(), counts)
    assert checker.polls > 100 * NUMBER
    assert len(checker.begun) > NUMBER
    assert place.history.count("approves") > NUMBER
    assert place.history.count("starts") > NUMBER / 5
