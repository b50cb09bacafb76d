"""The hook for PostgreSQL against a server of its own, which listens on a socket in a folder."""

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.hooks.conftest import FAILED, READY, InstalledMaker, need
from tests.postgres import OWNER, USER, Cluster, run, run_cluster


@dataclass(frozen=True, slots=True)
class Server:
    cluster: Cluster

    @property
    def command(self) -> Sequence[str]:
        host, port = str(self.cluster.folder), str(self.cluster.port)
        place = ("--host", host, "--port", port, "--username", OWNER)
        return ("psql", "--no-psqlrc", "--quiet", *place, "postgres")

    def ask(self, statement: str) -> str:
        return run(*self.command, "--no-align", "--tuples-only", "--command", statement).strip()

    def write(self) -> int:
        """Change something, and return the place in the log that a checkpoint has to reach."""
        self.ask("CREATE TABLE thing AS SELECT generate_series(1, 1000)")
        return int(self.ask("SELECT pg_current_wal_lsn() - '0/0'"))

    @property
    def checkpoint(self) -> int:
        """Up to which place in the log all is on disk."""
        return int(self.ask("SELECT checkpoint_lsn - '0/0' FROM pg_control_checkpoint()"))


@pytest.fixture
def server() -> Generator[Server]:
    need("psql", "runuser")
    with run_cluster(checkpoint_timeout="1h") as cluster:
        yield Server(cluster)


def test_checkpoint_is_made_when_an_event_is_announced(
    server: Server, install: InstalledMaker
) -> None:
    hook = install("postgresql-checkpoint", RUN_AS=USER, PSQL=" ".join(server.command))
    place = server.write()

    for phase in ("started", "recovered", "canceled"):
        assert hook.run(phase).status == READY
    assert server.checkpoint < place
    assert hook.run("scheduled").status == READY

    assert server.checkpoint >= place


def test_server_that_is_away_is_a_failure(tmp_path: Path, install: InstalledMaker) -> None:
    need("psql")
    hook = install("postgresql-checkpoint", RUN_AS="", PSQL=f"psql --host {tmp_path}")

    ended = hook.run("scheduled")

    assert ended.status == FAILED
    assert "no checkpoint: psql: error" in ended.said
