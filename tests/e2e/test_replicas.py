"""Three servers on one PostgreSQL are one service, whichever is killed, stopped or asked."""

import signal
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from tests.e2e.conftest import ANSWER_SECONDS, ServerMaker, wait_until
from tests.e2e.replicas import Crowd, StopOrder, Trio, check_approvals, make_replicas, park
from tests.postgres import run_cluster

pytestmark = pytest.mark.timeout(300)

SCRIPT = """#!/bin/sh
echo "$EVENT_ID $EVENT_VM" >> {folder}/runs
while [ -e {folder}/wait ]; do sleep 0.02; done
"""
VMS = ("web-0", "web-1", "web-2", "solo-0", "solo-1")

MakeTrio = Callable[..., Trio]


@pytest.fixture
def make_trio(make_server: ServerMaker, tmp_path: Path) -> MakeTrio:
    """Return what starts three replicas that have a script in common, as its log is."""
    script = tmp_path / "maintain"
    script.write_text(SCRIPT.format(folder=tmp_path), encoding="utf-8")
    script.chmod(0o755)
    executors = tmp_path / "executors.toml"
    executors.write_text('[[command]]\nrun = ["./maintain"]\ntimeout = "1m"\n', encoding="utf-8")

    def make(url: str, *prefix: str) -> Trio:
        flags = ("--executor-file", str(executors), "--speed", "60")
        trio = make_replicas(
            make_server, url, tmp_path, *flags, prefix=prefix, is_replaced=bool(prefix)
        )
        for server in trio.servers:
            server.start()
        return trio

    return make


def runs(folder: Path) -> Counter[str]:
    """Return how often the script was run, for which event and virtual machine."""
    try:
        return Counter((folder / "runs").read_text(encoding="utf-8").splitlines())
    except FileNotFoundError:
        return Counter()


@pytest.mark.parametrize("point", ["record", "begin", "impact"])
def test_killed_leader_is_replaced_and_each_impact_begins_once(
    make_trio: MakeTrio, postgres_url: str, tmp_path: Path, point: str
) -> None:
    stop = StopOrder(tmp_path / "stop")
    trio = make_trio(postgres_url, *(stop.prefix if point != "impact" else ()))
    leader, epoch = trio.leader(), trio.epoch()
    crowd = Crowd(trio, VMS, away=leader)
    (tmp_path / "wait").touch()

    with crowd.polling():
        if point != "impact":
            stop.give(leader, point, signal.SIGKILL)
        (event,) = trio.followers()[0].create("Reboot", "web-0")
        if point == "impact":
            wait_until(lambda: bool(runs(tmp_path)), "no impact has begun", ANSWER_SECONDS)
            leader.kill()
        else:
            assert leader.wait() == -signal.SIGKILL
        seconds = trio.wait_for_takeover(epoch)
        wait_until(lambda: bool(runs(tmp_path)), "no impact has begun", ANSWER_SECONDS)
        (tmp_path / "wait").unlink()
        if point == "impact":
            leader.start()  # only it knows how far the impact is
        trio.leader().wait_for(event["event_id"], "Completed", 2 * ANSWER_SECONDS)
        if point != "impact":
            leader.start()
        crowd.away = None

    assert runs(tmp_path) == {f"{event['event_id']} web-0": 1}
    assert crowd.polls
    check_approvals(trio, crowd)
    assert seconds < 50


def test_leader_that_stood_still_past_its_lease_steps_down_and_does_nothing_twice(
    make_trio: MakeTrio, postgres_url: str, tmp_path: Path
) -> None:
    stop = StopOrder(tmp_path / "stop")
    trio = make_trio(postgres_url, *stop.prefix)
    leader, epoch = trio.leader(), trio.epoch()

    stop.give(leader, "begin", signal.SIGSTOP)
    (event,) = trio.followers()[0].create("Preempt", "solo-0")
    trio.followers()[0].approve("solo-0", event["event_id"])
    trio.wait_for_takeover(epoch)
    others = [server for server in trio.servers if server is not leader]
    others[0].wait_for(event["event_id"], "Completed")
    assert leader.process is not None
    leader.process.send_signal(signal.SIGCONT)
    wait_until(lambda: "lease_lost" in leader.said(), "it did not step down", ANSWER_SECONDS)

    assert runs(tmp_path) == {f"{event['event_id']} solo-0": 1}
    # It campaigns again: it leads once the others are gone, or did before on a busy machine.
    for server in others:
        assert server.stop() == 0
    assert trio.leader() is leader
    (event,) = leader.create("Preempt", "solo-1")
    leader.approve("solo-1", event["event_id"])
    leader.wait_for(event["event_id"], "Completed")
    assert set(runs(tmp_path).values()) == {1}


def test_any_replica_takes_what_operators_and_machines_say(
    make_trio: MakeTrio, postgres_url: str
) -> None:
    trio = make_trio(postgres_url)
    leader = trio.leader()
    first, second = trio.followers()

    order = {"event_type": "Reboot", "scopes": ["availability-set/web"]}
    answer = first.operate("POST", "maintenances", order)
    assert answer.status == 201, answer
    path = f"maintenances/{answer.json()['maintenance_id']}"
    wait_until(lambda: bool(leader.poll("web-0").events), "nothing is announced", ANSWER_SECONDS)
    assert second.operate("POST", f"{path}/pause").status == 200

    sayings = {server.operate("GET", f"{path}/explain").body for server in trio.servers}
    assert len(sayings) == 1
    (event,) = second.poll("web-0").events
    told = {
        server.operate("GET", f"events/{event['EventId']}/explain").body for server in trio.servers
    }
    assert len(told) == 1
    assert second.approve("web-0", event["EventId"]).status == 200
    assert second.event(event["EventId"])["approvals"]


def test_every_parked_poll_is_answered_after_a_commit_on_one_replica(
    make_trio: MakeTrio, postgres_url: str
) -> None:
    trio = make_trio(postgres_url)
    vms = [f"crowd-{number}" for number in range(100)]
    fleet = {
        "availability_set": [{"name": "crowd"}],
        "virtual_machine": [{"name": vm, "availability_set": "crowd"} for vm in vms],
    }
    assert trio.servers[2].operate("POST", "fleet", {"fleet": fleet}).status == 200
    for server in trio.servers:
        wait_until(lambda: server.poll("crowd-0").status == 200, "the fleet is old", ANSWER_SECONDS)  # noqa: B023

    with park(trio.servers, vms, number=1000) as answers:
        trio.servers[0].create("Freeze", "crowd-0")

    assert [len(each) for each in answers] == [1000, 1000, 1000]
    assert {body for each in answers for body in each} == {trio.servers[1].poll("crowd-0").body}


def test_database_that_is_stopped_and_started_loses_nothing(make_trio: MakeTrio) -> None:
    with run_cluster() as cluster:
        trio = make_trio(cluster.new_database())
        crowd = Crowd(trio, VMS)
        events = []

        with crowd.polling():
            events += trio.servers[0].create("Freeze", "web-0")
            for mode in ("fast", "immediate"):
                cluster.stop(mode)
                for server in trio.servers:
                    refused = server.operate(
                        "POST", "events", {"event_type": "Freeze", "resources": ["solo-0"]}
                    )
                    assert refused.status == 503, refused
                    assert refused.headers["retry-after"]
                    assert server.health("/readyz") == 200
                cluster.start()
                wait_until(
                    lambda: all(server.health("/readyz/write") == 200 for server in trio.servers),
                    "a replica takes no writes",
                    ANSWER_SECONDS,
                )
                events += trio.followers()[0].create(
                    "Freeze", "solo-1" if mode == "fast" else "solo-0"
                )

        for event in events:
            assert {server.event(event["event_id"])["event_id"] for server in trio.servers} == {
                event["event_id"]
            }
        check_approvals(trio, crowd)
        for vm in VMS:
            wait_until(partial(is_same, trio, vm), "replicas differ", ANSWER_SECONDS)


def is_same(trio: Trio, vm: str) -> bool:
    """Tell whether all replicas show *vm* the same."""
    return len({server.poll(vm).body for server in trio.servers}) == 1
