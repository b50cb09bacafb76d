"""Scripts of three servers on one PostgreSQL run once and end, whatever becomes of the leader."""

import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from tests.e2e.conftest import ANSWER_SECONDS, START_SECONDS, Server, wait_until
from tests.e2e.leader_losses import LOSSES, POINTS, WEB_0, MakeRollout, Rollout, make_rollout
from tests.e2e.witness import now
from tests.receiver import Receiver

pytestmark = pytest.mark.timeout(300)

__all__ = ["make_rollout"]

GRACE_SECONDS = 12.0
PAGE_SECONDS = 10.0
NOTIFICATIONS = """
[[target]]
name = "pager"
kind = "webhook"
url = "{url}"
"""
# Of the one that is away for the longest time.
HEARD_AT = "SELECT min(heard_at) / 1e6 FROM owners"
COMMAND = re.compile(
    r"until an operator acts: forewarn (.+?)(?:, or forewarn .+)?\.$", re.MULTILINE
)
STUCK = re.compile(r'^forewarn_maintenances{status="stuck"} (\S+)$', re.MULTILINE)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("point", POINTS)
def test_nothing_is_done_twice_or_stranded_when_the_leader_is_lost(
    make_rollout: MakeRollout, point: str, loss: str
) -> None:
    rollout = make_rollout()

    rollout.lose_leader(POINTS[point], LOSSES[loss])

    rollout.check_end()
    assert rollout.trio.takeovers()


@pytest.fixture
def pager() -> Iterator[Receiver]:
    receiver = Receiver()
    with receiver.listening():
        yield receiver


@pytest.fixture
def notifications(tmp_path: Path, pager: Receiver) -> str:
    path = tmp_path / "notifications.toml"
    path.write_text(NOTIFICATIONS.format(url=pager.url), encoding="utf-8")
    return str(path)


def phases(pager: Receiver) -> list[str]:
    return [request.json()["data"]["phase"] for request in pager.received]


def count_stuck(server: Server) -> float:
    """Return how many Maintenances are stuck, as the metric of the replica says."""
    with closing(server.operator_client()) as client:
        (count,) = STUCK.findall(client.ask("GET", "/metrics").body.decode())
    return float(count)


def lose_leader_in_a_script(rollout: Rollout) -> Server:
    """Kill the leader while its script runs, and return it."""
    rollout.hold(WEB_0)
    leader = rollout.trio.leader()
    rollout.start()
    rollout.wait_for_script(WEB_0)
    leader.kill()
    return leader


def test_restart_within_owner_grace_pages_nobody(
    make_rollout: MakeRollout, notifications: str, pager: Receiver
) -> None:
    rollout = make_rollout("--notifications", notifications, "--owner-grace", "60s")
    leader = lose_leader_in_a_script(rollout)

    rollout.wait_for_status("waiting for replica")
    leader.start()
    rollout.let_go()

    rollout.check_end()
    wait_until(lambda: "finished" in phases(pager), "the end is not told", ANSWER_SECONDS)
    assert not {"stuck", "held"} & {*phases(pager)}
    assert not any(count_stuck(server) for server in rollout.trio.servers)


@pytest.mark.parametrize("is_back", [True, False], ids=["is-back", "is-gone"])
def test_leader_that_stays_away_pages_and_its_return_or_one_command_ends_the_roll_out(
    make_rollout: MakeRollout, notifications: str, pager: Receiver, *, is_back: bool
) -> None:
    flags = ("--notifications", notifications, "--owner-grace", f"{GRACE_SECONDS:.0f}s")
    rollout = make_rollout(*flags)
    leader = lose_leader_in_a_script(rollout)

    wait_until(lambda: "stuck" in phases(pager), "nobody is paged", START_SECONDS)
    paged_at = now()
    asked = rollout.trio.leader()
    wait_until(lambda: count_stuck(asked) == 1, "the metric does not say so", START_SECONDS)
    counted_at = now()
    with psycopg.connect(rollout.trio.url) as connection:
        (heard_at,) = connection.execute(HEARD_AT).fetchone() or ()
    due_at = float(heard_at) + GRACE_SECONDS
    rollout.wait_for_status("stuck")
    rollout.let_go()
    rollout.wait_for_script(WEB_0, "end")
    if is_back:
        leader.start()
    else:
        explained = asked.try_command("maintenance", "explain", rollout.maintenance_id)
        (command,) = COMMAND.findall(explained.stdout)
        done = asked.try_command(*command.split(), "--yes")
        assert done.returncode == 0, done.stderr

    rollout.check_end()
    assert due_at <= paged_at <= counted_at <= due_at + PAGE_SECONDS
    assert phases(pager).count("stuck") == 1
