"""The hook for Patroni against a cluster of two members, with etcd."""

from collections.abc import Generator

import pytest
from tests.hooks.conftest import FAILED, NOT_YET, READY, InstalledMaker
from tests.patroni import Member, run_patroni


@pytest.fixture(scope="module")
def cluster() -> Generator[tuple[Member, Member]]:
    """A leader and a replica, and later the other way round."""
    with run_patroni() as members:
        yield members


@pytest.fixture
def leader(cluster: tuple[Member, Member]) -> Member:
    return next(member for member in cluster if member.is_a("leader"))


@pytest.fixture
def replica(cluster: tuple[Member, Member], leader: Member) -> Member:
    (replica,) = (member for member in cluster if member is not leader)
    replica.wait_to_be_a("replica")
    return replica


def test_leader_hands_over(leader: Member, replica: Member, install: InstalledMaker) -> None:
    settings = {"MEMBER": leader.name, "CLUSTER": "db", "CONFIG": str(leader.file)}
    hook = install("patroni-switchover", **settings)

    assert hook.run("recovered").status == READY
    assert leader.is_a("leader")
    assert hook.run("scheduled").status == READY
    replica.wait_to_be_a("leader")
    again = hook.run("scheduled")

    assert (again.status, again.said) == (READY, f"patroni-switchover: {leader.name} is Replica\n")


def test_leader_waits_while_nobody_can_take_over(
    leader: Member, replica: Member, install: InstalledMaker
) -> None:
    hook = install("patroni-switchover", MEMBER=leader.name, CONFIG=str(leader.file))

    with replica.suspended():
        ended = hook.run("scheduled")

    assert ended.status == NOT_YET
    assert "no good candidates have been found" in ended.said
    assert leader.is_a("leader")


def test_unknown_member_is_a_failure(leader: Member, install: InstalledMaker) -> None:
    hook = install("patroni-switchover", MEMBER="db-9", CLUSTER="db", CONFIG=str(leader.file))

    ended = hook.run("scheduled")

    assert ended.status == FAILED
    assert "no member db-9" in ended.said
