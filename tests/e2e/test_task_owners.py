"""Scripts of three servers on one PostgreSQL run once and end, whatever becomes of the leader."""

import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.e2e.conftest import ANSWER_SECONDS, START_SECONDS, Server, ServerMaker, wait_until
from tests.e2e.replicas import Trio, make_replicas

pytestmark = pytest.mark.timeout(300)

SCRIPT = """#!/bin/sh
echo "$EVENT_VM begins" >> {folder}/witness
while [ -e {folder}/wait ]; do sleep 0.02; done
echo "$EVENT_VM ends" >> {folder}/witness
"""
VMS = ("web-0", "web-1", "web-2")
ONCE = {f"{vm} {what}": 1 for vm in VMS for what in ("begins", "ends")}
STOPPING = Path(__file__).with_name("stopping_server.py")


@dataclass(slots=True)
class Rollout:
    """A Maintenance on three machines, one after the other, whose scripts leave a witness."""

    trio: Trio
    folder: Path
    path: str = ""

    def start(self) -> None:
        order = {"event_type": "Reboot", "scopes": ["availability-set/web"]}
        answer = self.trio.followers()[0].operate("POST", "maintenances", order)
        assert answer.status == 201, answer
        self.path = f"maintenances/{answer.json()['maintenance_id']}"

    def witness(self) -> Counter[str]:
        try:
            return Counter((self.folder / "witness").read_text(encoding="utf-8").splitlines())
        except FileNotFoundError:
            return Counter()

    def wait_for_a_script(self) -> None:
        wait_until(lambda: bool(self.witness()), "no script runs", START_SECONDS)

    def wait_for_status(self, status: str, server: Server | None = None) -> None:
        asked = server or self.trio.followers()[0]
        path = f"{self.path}/explain"
        wait_until(
            lambda: asked.operate("GET", path).json()["status"] == status,
            f"the Maintenance is not {status}",
            START_SECONDS,
        )

    def let_go(self) -> None:
        (self.folder / "wait").unlink(missing_ok=True)

    def wait_for_end(self) -> None:
        """Wait until it ended, each script ran once, and nothing of it is left."""
        server = next(server for server in self.trio.servers if server.process)
        self.wait_for_status("completed", server)
        assert self.witness() == ONCE
        assert server.operate("GET", "tasks").json()["tasks"] == []


MakeRollout = Callable[..., Rollout]


@pytest.fixture
def make_rollout(
    make_server: ServerMaker, postgres_url: str, tmp_path: Path
) -> Iterator[MakeRollout]:
    """Return what starts three servers, and a Maintenance whose scripts wait until let go."""
    script = tmp_path / "maintain"
    script.write_text(SCRIPT.format(folder=tmp_path), encoding="utf-8")
    script.chmod(0o755)
    executors = tmp_path / "executors.toml"
    executors.write_text('[[command]]\nrun = ["./maintain"]\ntimeout = "5m"\n', encoding="utf-8")
    (tmp_path / "wait").touch()

    def make(*flags: str, prefix: tuple[str, ...] = ()) -> Rollout:
        given = ("--executor-file", str(executors), "--speed", "600", *flags)
        trio = make_replicas(
            make_server, postgres_url, tmp_path, *given, prefix=prefix, is_replaced=bool(prefix)
        )
        for server in trio.servers:
            server.start()
        return Rollout(trio, tmp_path)

    yield make
    (tmp_path / "wait").unlink(missing_ok=True)


def test_scripts_of_a_killed_leader_are_waited_for_until_it_is_started_again(
    make_rollout: MakeRollout,
) -> None:
    rollout = make_rollout()
    rollout.start()
    rollout.wait_for_a_script()
    leader, epoch = rollout.trio.leader(), rollout.trio.epoch()

    leader.kill()
    rollout.trio.wait_for_takeover(epoch)
    rollout.wait_for_status("waiting for replica")
    rollout.let_go()
    wait_until(lambda: rollout.witness().total() == 2, "the script ended", ANSWER_SECONDS)
    leader.start()

    rollout.wait_for_end()


def test_scripts_of_a_leader_that_stood_still_past_its_lease_end_while_another_leads(
    make_rollout: MakeRollout,
) -> None:
    rollout = make_rollout()
    rollout.start()
    rollout.wait_for_a_script()
    leader, epoch = rollout.trio.leader(), rollout.trio.epoch()
    assert leader.process is not None

    leader.process.send_signal(signal.SIGSTOP)
    rollout.trio.wait_for_takeover(epoch)
    rollout.let_go()
    leader.process.send_signal(signal.SIGCONT)
    wait_until(lambda: "lease_lost" in leader.said(), "it did not step down", ANSWER_SECONDS)

    rollout.wait_for_end()


def test_scripts_of_a_leader_that_was_stopped_are_found_when_it_is_started_again(
    make_rollout: MakeRollout,
) -> None:
    rollout = make_rollout()
    rollout.start()
    rollout.wait_for_a_script()
    leader, epoch = rollout.trio.leader(), rollout.trio.epoch()

    assert leader.stop() == 0, leader.said()
    rollout.trio.wait_for_takeover(epoch)
    leader.start()
    rollout.let_go()

    rollout.wait_for_end()


def test_maintenance_that_is_stuck_on_a_dead_leader_ends_when_it_is_started_again(
    make_rollout: MakeRollout,
) -> None:
    rollout = make_rollout("--owner-grace", "12s")
    rollout.start()
    rollout.wait_for_a_script()
    leader = rollout.trio.leader()

    leader.kill()
    rollout.wait_for_status("stuck")
    rollout.let_go()
    leader.start()

    rollout.wait_for_end()


def test_task_of_a_leader_killed_between_commit_and_record_is_begun_once_after_its_restart(
    make_rollout: MakeRollout, tmp_path: Path
) -> None:
    marker = tmp_path / "marker"
    rollout = make_rollout(prefix=(sys.executable, str(STOPPING), "claim", "SIGKILL", str(marker)))
    leader, epoch = rollout.trio.leader(), rollout.trio.epoch()
    marker.touch()

    rollout.start()
    assert leader.wait() == -signal.SIGKILL
    rollout.trio.wait_for_takeover(epoch)
    rollout.let_go()
    leader.start()

    rollout.wait_for_end()
