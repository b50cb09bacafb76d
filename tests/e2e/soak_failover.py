"""The primary of a Patroni cluster is killed under three replicas. Only `make soak` runs this."""

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import count
from pathlib import Path

from tests.e2e.conftest import ANSWER_SECONDS, Server, ServerMaker, wait_until
from tests.e2e.replicas import Crowd, Trio, check_approvals, make_replicas
from tests.patroni import Member, run_patroni

VMS = ("web-0", "web-1", "web-2", "solo-0", "solo-1")
FAILOVER_SECONDS = 45.0
"""Patroni waits for 20 s at least before it takes a member for dead."""


def database_url(members: Sequence[Member]) -> str:
    """Return the URL with all hosts, of which the one that can be written is taken."""
    hosts = ",".join(f"127.0.0.1:{member.database_port}" for member in members)
    return f"postgresql://superuser@{hosts}/postgres?target_session_attrs=read-write"


def declare(is_over: threading.Event, servers: Sequence[Server]) -> set[str]:
    """Declare virtual machines, one after the other; return those that were acknowledged."""
    declared = set()
    for number in count():
        name = f"extra-{number}"
        fleet = {"virtual_machine": [{"name": name}]}
        answer = servers[number % len(servers)].operate("POST", "fleet", {"fleet": fleet})
        assert answer.status in {200, 503}, answer
        if answer.status == 200:
            declared.add(name)
        if is_over.wait(0.1):
            return declared
    raise AssertionError


def knows(server: Server, names: set[str]) -> bool:
    machines = server.operate("GET", "virtual-machines").json()["virtual_machines"]
    return names <= {vm["name"] for vm in machines}


def test_failover_of_the_database_loses_no_acknowledged_write_and_no_poll(
    make_server: ServerMaker, tmp_path: Path
) -> None:
    with run_patroni(ttl=20, synchronous_mode=True) as (primary, standby):
        url = database_url((primary, standby))
        flags = ("--executor", "simulated", "--speed", "60")
        trio = make_replicas(make_server, url, tmp_path, *flags)
        for server in trio.servers:
            server.start()
        standby.wait_to_be_a("sync")
        is_over = threading.Event()
        crowd = Crowd(trio, VMS)

        with ThreadPoolExecutor(1) as pool, crowd.polling():
            declaring = pool.submit(declare, is_over, trio.servers)
            try:
                (before,) = trio.servers[0].create("Freeze", "web-0")
                trio.servers[1].wait_for(before["event_id"], "Completed", 2 * ANSWER_SECONDS)
                primary.kill()
                wait_until(lambda: not can_all_write(trio), "nobody noticed", ANSWER_SECONDS)
                wait_until(partial(can_all_write, trio), "no failover", FAILOVER_SECONDS)
                (after,) = trio.servers[2].create("Freeze", "solo-0")
                trio.servers[1].wait_for(after["event_id"], "Completed", 2 * ANSWER_SECONDS)
            finally:
                is_over.set()
            declared = declaring.result(ANSWER_SECONDS)

        assert declared
        for server in trio.servers:
            wait_until(partial(knows, server, declared), "a write is lost", ANSWER_SECONDS)
            assert server.event(before["event_id"])["event_status"] == "Completed"
        check_approvals(trio, crowd)
        assert trio.leader() in trio.servers


def can_all_write(trio: Trio) -> bool:
    return all(server.health("/readyz/write") == 200 for server in trio.servers)
