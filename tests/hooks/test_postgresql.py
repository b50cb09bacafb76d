"""The hook for PostgreSQL against a server of its own, which listens on a socket in a folder."""

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.hooks.conftest import FAILED, PATH, READY, InstalledMaker, need

SECONDS = 60


@dataclass(frozen=True, slots=True)
class Server:
    folder: Path
    user: str

    def ask(self, statement: str) -> str:
        asking = ["psql", *self.options, "--no-align", "--tuples-only", "--command", statement]
        return _run(asking, self.user).strip()

    @property
    def options(self) -> Sequence[str]:
        return ("--no-psqlrc", "--quiet", "--host", str(self.folder), "--dbname", "postgres")

    def write(self) -> str:
        """Change something, and return the place in the log that a checkpoint has to reach."""
        self.ask("CREATE TABLE thing AS SELECT generate_series(1, 1000)")
        return self.ask("SELECT pg_current_wal_lsn()")

    def has_checkpoint_after(self, place: str) -> bool:
        return self.ask(f"SELECT checkpoint_lsn >= '{place}' FROM pg_control_checkpoint()") == "t"


@pytest.fixture
def server() -> Generator[Server]:
    """PostgreSQL refuses to run as root, and its user cannot look into the folders of root."""
    need("psql", "setpriv", "runuser")
    binaries = max(Path("/usr/lib/postgresql").glob("*/bin"), default=None)
    if binaries is None:
        pytest.skip("there is no PostgreSQL server; run scripts/test_needs.sh as root")
    user = "postgres" if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name
    folder = Path(tempfile.mkdtemp(prefix="postgresql-"))
    shutil.chown(folder, user)
    data = str(folder / "data")
    options = f"-k {folder} -c listen_addresses='' -c fsync=off -c checkpoint_timeout=1h"
    control = [f"{binaries}/pg_ctl", "--pgdata", data, "--silent", "--wait"]
    try:
        _run([f"{binaries}/initdb", "-D", data, "-A", "trust", "--no-sync"], user)
        _run([*control, "--log", f"{folder}/log", "--options", options, "start"], user)
        try:
            yield Server(folder, user)
        finally:
            _run([*control, "--mode", "immediate", "stop"], user)
    finally:
        shutil.rmtree(folder)


def _run(command: Sequence[str], user: str) -> str:
    as_user = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"]
    words = [*(as_user if os.geteuid() == 0 else []), *command]
    done = subprocess.run(
        words,
        cwd="/",
        env={"PATH": PATH, "LC_ALL": "C"},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_checkpoint_is_made_when_an_event_is_announced(
    server: Server, install: InstalledMaker
) -> None:
    hook = install(
        "postgresql-checkpoint", RUN_AS=server.user, PSQL=" ".join(["psql", *server.options])
    )
    place = server.write()
    assert not server.has_checkpoint_after(place)

    for phase in ("started", "recovered", "canceled"):
        assert hook.run(phase).status == READY
    assert not server.has_checkpoint_after(place)
    assert hook.run("scheduled").status == READY

    assert server.has_checkpoint_after(place)


def test_server_that_is_away_is_a_failure(tmp_path: Path, install: InstalledMaker) -> None:
    need("psql")
    hook = install("postgresql-checkpoint", RUN_AS="", PSQL=f"psql --host {tmp_path}")

    ended = hook.run("scheduled")

    assert ended.status == FAILED
    assert "no checkpoint: psql: error" in ended.said
