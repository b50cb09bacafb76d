"""A roll-out over two hosts whose scripts leave a witness, and ways to lose the leader in it."""

import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Final

import pytest
from tests.e2e.conftest import ANSWER_SECONDS, START_SECONDS, Server, ServerMaker, wait_until
from tests.e2e.replicas import StopOrder, Trio, make_replicas
from tests.e2e.witness import now

SPEED: Final = 600
NOTICE: Final = timedelta(minutes=15) / SPEED
TAKEOVER_SECONDS: Final = 6.0
LOOK_SECONDS: Final = 0.1
HOSTS: Final = {"kvm-1": "web-0", "kvm-2": "web-1"}
WEB_0, KVM_1 = "impact-web-0", "work-kvm-1"
SCRIPTS: Final = tuple(
    each for host, vm in HOSTS.items() for each in (f"impact-{vm}", f"work-{host}")
)
FLEET: Final = """
[[availability_set]]
name = "web"
update_domains = 2
""" + "".join(
    f"""
[[host]]
name = "{host}"
labels = {{ cluster = "a" }}

[[virtual_machine]]
name = "{vm}"
availability_set = "web"
update_domain = {number}
host = "{host}"
"""
    for number, (host, vm) in enumerate(HOSTS.items())
)
EXECUTORS: Final = """
[[command]]
run = ["./run", "impact"]

[[host_work]]
labels = { cluster = "a" }
run = ["./run", "work"]
"""
SCRIPT: Final = """#!/bin/sh
what="$1-${{EVENT_VM:-$OPERATION_HOST}}"
echo "begin $what $TASK_ID $(date +%s.%N)" >> {folder}/witness
while [ -e "{folder}/hold.$what" ]; do sleep 0.02; done
echo "end $what $TASK_ID $(date +%s.%N)" >> {folder}/witness
"""


@dataclass(frozen=True, slots=True)
class Point:
    """A moment of a roll-out: *after* so many seconds in a script that is *held*.

    Without a script, they count from the announcement. With *stops_at*, the leader is lost when it
    next comes to that point of `stopping_server`; the script is let go first.
    """

    held: str = ""
    stops_at: str = ""
    after: float = 0


POINTS: Final[Mapping[str, Point]] = {
    "announced": Point(),
    "claiming": Point(stops_at="claim"),
    "impact": Point(held=WEB_0),
    "reporting": Point(held=WEB_0, stops_at="report"),
    "work": Point(held=KVM_1),
    "between": Point(held=KVM_1, stops_at="write"),
}
"""Six points of the turn of the first host, in their order; the last is before the next domain."""


@dataclass(slots=True)
class Rollout:
    """A Maintenance on two hosts, one after the other, whose scripts leave a witness."""

    trio: Trio
    folder: Path
    stop: StopOrder
    stack: ExitStack
    is_over: threading.Event = field(default_factory=threading.Event)
    maintenance_id: str = ""
    shown: dict[str, tuple[float, float]] = field(default_factory=dict)
    """When the document of each virtual machine first had its event, and the NotBefore of that."""

    def start(self) -> None:
        """Start it on a replica that does not lead."""
        order = {"event_type": "Reboot", "hosts": [*HOSTS]}
        follower = self.trio.followers()[0]
        watching = threading.Thread(target=self.watch, args=(follower,))
        self.stack.callback(watching.join)
        self.stack.callback(self.is_over.set)
        watching.start()
        answer = follower.operate("POST", "maintenances", order)
        assert answer.status == 201, answer
        self.maintenance_id = answer.json()["maintenance_id"]

    def follow(self) -> "Rollout":
        """Return another roll-out on the same servers, with an empty witness."""
        (self.folder / "witness").unlink(missing_ok=True)
        return Rollout(self.trio, self.folder, self.stop, self.stack)

    def witness(self) -> list[list[str]]:
        """Return what the scripts have written, in words."""
        try:
            lines = (self.folder / "witness").read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return []
        return [line.split() for line in lines]

    def wait_for_script(self, name: str, what: str = "begin") -> None:
        wait_until(
            lambda: [what, name] in (words[:2] for words in self.witness()),
            f"{name} does not {what}",
            START_SECONDS,
        )

    def wait_for_status(self, status: str) -> None:
        server = self.trio.leader()
        path = f"maintenances/{self.maintenance_id}/explain"
        wait_until(
            lambda: server.operate("GET", path).json()["status"] == status,
            f"the Maintenance is not {status}",
            START_SECONDS,
            pause=LOOK_SECONDS,
        )

    def hold(self, name: str) -> None:
        """Have a script wait until it is let go."""
        (self.folder / f"hold.{name}").touch()

    def let_go(self) -> None:
        for path in self.folder.glob("hold.*"):
            path.unlink()

    def watch(self, server: Server) -> None:
        """Poll until it is over, and note what is announced."""
        with closing(server.vm_client()) as client:
            while not self.is_over.wait(LOOK_SECONDS):
                for event in client.poll("web-0").events:
                    if event["EventStatus"] == "Scheduled":
                        not_before = parsedate_to_datetime(event["NotBefore"]).timestamp()
                        (vm,) = event["Resources"]
                        self.shown.setdefault(vm, (now(), not_before))

    def lose_leader(self, point: Point, lose: "Loss") -> None:
        """Start it, and have the leader be lost at *point* and come back."""
        leader = self.trio.leader()
        number, come_back = lose
        epoch = self.trio.epoch()
        if point.held:
            self.hold(point.held)
        self.start()
        if point.held:
            self.wait_for_script(point.held)
        else:
            wait_until(lambda: bool(self.shown), "nothing is announced", START_SECONDS)
        time.sleep(point.after)
        if point.stops_at:
            self.stop.give(leader, point.stops_at, number)
            self.let_go()
            wait_until(lambda: not self.stop.is_pending, "it does not get there", START_SECONDS)
        else:
            assert leader.process is not None
            leader.process.send_signal(number)
        come_back(self, leader, epoch)

    def check_end(self) -> None:
        """Wait for its end, and check that all was announced in time and ran once."""
        self.wait_for_status("completed")
        self.is_over.set()
        path = f"maintenances/{self.maintenance_id}"
        server = self.trio.leader()
        assert server.operate("GET", "tasks").json()["tasks"] == []
        ran = self.witness()
        once = {(what, name): 1 for name in SCRIPTS for what in ("begin", "end")}
        assert Counter((what, name) for what, name, _, _ in ran) == once
        assert len({task_id for _, _, task_id, _ in ran}) == len(SCRIPTS)
        begun = {name: float(at) for what, name, _, at in ran if what == "begin"}
        for event in server.operate("GET", path).json()["events"]:
            (vm,) = event["resources"]
            created, not_before, started = (
                datetime.fromisoformat(event[name])
                for name in ("created_at", "not_before", "started_at")
            )
            assert created + NOTICE <= not_before <= started, event
            first_shown, announced = self.shown[vm]
            assert max(first_shown, announced) <= begun[f"impact-{vm}"]
        takeovers = self.trio.takeovers()
        assert max(takeovers, default=0) <= TAKEOVER_SECONDS, takeovers


ComeBack = Callable[[Rollout, Server, int], None]
Loss = tuple[signal.Signals, ComeBack]


def start_again(rollout: Rollout, leader: Server, epoch: int) -> None:
    """Start it when another leads, and what it ran has ended."""
    assert leader.wait() == -signal.SIGKILL
    rollout.trio.wait_for_takeover(epoch)
    rollout.let_go()
    leader.start()


def go_on(rollout: Rollout, leader: Server, epoch: int) -> None:
    """Let it go on when another leads, and what it ran has ended."""
    rollout.trio.wait_for_takeover(epoch)
    rollout.let_go()
    assert leader.process is not None
    leader.process.send_signal(signal.SIGCONT)
    lost = f"epoch={epoch}"
    wait_until(
        lambda: any("lease_lost" in line and lost in line for line in leader.said().splitlines()),
        "it does not step down",
        ANSWER_SECONDS,
    )


def start_at_once(rollout: Rollout, leader: Server, epoch: int) -> None:
    """Start it while what it ran goes on."""
    assert leader.wait() == 0, leader.said()
    leader.start()
    rollout.trio.wait_for_takeover(epoch)
    rollout.let_go()


LOSSES: Final[Mapping[str, Loss]] = {
    "killed": (signal.SIGKILL, start_again),
    "paused": (signal.SIGSTOP, go_on),
    "restarted": (signal.SIGTERM, start_at_once),
}

MakeRollout = Callable[..., Rollout]


@pytest.fixture
def make_rollout(
    make_server: ServerMaker, postgres_url: str, tmp_path: Path
) -> Iterator[MakeRollout]:
    """Return what starts three servers, and watches what they tell virtual machines."""
    script = tmp_path / "run"
    script.write_text(SCRIPT.format(folder=tmp_path), encoding="utf-8")
    script.chmod(0o755)
    executors = tmp_path / "executors.toml"
    executors.write_text(EXECUTORS, encoding="utf-8")
    stack = ExitStack()

    def make(*flags: str) -> Rollout:
        stop = StopOrder(tmp_path / "stop")
        given = ("--executor-file", str(executors), "--speed", str(SPEED), *flags)
        trio = make_replicas(
            make_server, postgres_url, tmp_path, *given, prefix=stop.prefix, is_replaced=True
        )
        (tmp_path / "fleet.toml").write_text(FLEET, encoding="utf-8")
        rollout = Rollout(trio, tmp_path, stop, stack)
        stack.callback(rollout.let_go)
        trio.watch_lease()
        first, *others = trio.servers
        first.start()
        for server in others:
            server.launch()
        for server in others:
            server.wait_until_ready()
        return rollout

    with stack:
        yield make
