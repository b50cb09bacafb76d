"""PostgreSQL servers for tests. PostgreSQL refuses to run as root, so root runs it as its user."""

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Literal

import psycopg
from sqlalchemy import create_engine, make_url
from tests.needs import need, skip_without
from tests.ports import free_port

USER = "postgres" if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name
ENVIRONMENT = {"PATH": f"{os.defpath}:/usr/sbin:/sbin", "LC_ALL": "C"}
SECONDS = 45
OWNER = "forewarn"

# It sees the end of its input when the process that holds the other end is gone, however it ended.
_WATCHDOG = 'trap "" HUP INT TERM; cat > /dev/null; folder=$1; shift; "$@"; rm -rf "$folder"'

# As a replica would, because the ledger and the audit refuse it to everybody else.
_EMPTY = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
  WHERE datname = current_database() AND pid <> pg_backend_pid();
SET session_replication_role = replica;
DO $$ DECLARE name text; BEGIN
  FOR name IN SELECT tablename FROM pg_tables WHERE schemaname = 'public'
    AND tablename NOT IN ('alembic_version', 'settings', 'write_lock')
  LOOP EXECUTE format('DELETE FROM %I', name); END LOOP;
  FOR name IN SELECT sequencename FROM pg_sequences
  LOOP EXECUTE format('ALTER SEQUENCE %I RESTART', name); END LOOP;
END $$;
DELETE FROM settings WHERE name <> 'schema_works_with';
UPDATE write_lock SET last_change = 0;
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """A PostgreSQL server with data of its own, on a socket in its folder and on 127.0.0.1."""

    folder: Path
    port: int
    binaries: Path
    settings: dict[str, str]
    _numbers: Iterator[int] = field(default_factory=count)

    def start(self) -> None:
        """Start it, and wait until it takes connections."""
        options = "".join(f" -c {name}={value}" for name, value in self.settings.items())
        place = f"-k {self.folder} -p {self.port} -c listen_addresses=127.0.0.1"
        log = str(self.folder / "log")
        run(*self.control, "--log", log, "--options", place + options, "start")

    def stop(self, mode: Literal["fast", "immediate"] = "fast") -> None:
        """Stop it; `immediate` is what a crash looks like to everyone else."""
        run(*self.control, "--mode", mode, "stop")

    @property
    def control(self) -> Sequence[str]:
        """The command that starts and stops it."""
        data = str(self.folder / "data")
        return (str(self.binaries / "pg_ctl"), "--pgdata", data, "--silent", "--wait")

    def url(self, database: str = "postgres") -> str:
        """Return how to reach a database over TCP."""
        return f"postgresql://{OWNER}@127.0.0.1:{self.port}/{database}"

    def new_database(self) -> str:
        """Create a database that has the schema and nothing else, and return its URL."""
        return self._create(template=self._template())

    def empty_database(self) -> str:
        """Create a database with nothing in it, and return its URL."""
        return self._create(template="template0")

    @contextmanager
    def lend(self) -> Generator[str]:
        """Give the URL of a database that has the schema and nothing else, for a block."""
        url = self.new_database()
        yield url
        self.drop(url)

    def renew(self, url: str) -> None:
        """Have a database that has the schema as it was; to create one takes five times as long."""
        with psycopg.connect(url) as connection:
            connection.execute(_EMPTY)

    def drop(self, url: str) -> None:
        """Remove a database, whoever is connected to it."""
        self.run_sql(f"DROP DATABASE IF EXISTS {make_url(url).database} WITH (FORCE)")

    def run_sql(self, statement: str) -> None:
        """Run a statement outside of any transaction, as the owner."""
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(statement.encode())

    def _create(self, *, template: str, name: str = "") -> str:
        name = name or f"test_{next(self._numbers)}"
        self.run_sql(f"CREATE DATABASE {name} TEMPLATE {template}")
        return self.url(name)

    def _template(self) -> str:
        # At the top it would be imported with conftest.py, before coverage begins to look.
        from forewarn.storage.schema import prepare_database  # noqa: PLC0415

        name = "with_schema"
        with psycopg.connect(self.url()) as connection:
            query = "SELECT 1 FROM pg_database WHERE datname = %s"
            is_there = connection.execute(query, [name]).fetchone() is not None
        if not is_there:
            url = make_url(self._create(template="template0", name=name))
            engine = create_engine(url.set(drivername="postgresql+psycopg"))
            prepare_database(engine, migrate=True)
            engine.dispose()
        return name


@contextmanager
def run_cluster(**settings: str) -> Generator[Cluster]:
    """Run a server, with *settings* of postgresql.conf, until the end of this process at most.

    It does not wait for the disk, unless *settings* has fsync.
    """
    binaries = find_binaries()
    folder = _user_folder()
    cluster = Cluster(
        folder=folder,
        port=free_port(),
        binaries=binaries,
        settings={"fsync": "off", "full_page_writes": "off", **settings},
    )
    stop = as_user(*cluster.control, "--mode", "immediate", "stop")
    watchdog = subprocess.Popen(
        ["/bin/sh", "-c", _WATCHDOG, "sh", str(folder), *stop],
        cwd="/",
        env=ENVIRONMENT,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        data = str(folder / "data")
        kind = ("-U", OWNER, "-A", "trust", "-E", "UTF8", "--locale", "C")
        run(str(binaries / "initdb"), "-D", data, *kind, "--no-sync")
        cluster.start()
        yield cluster
    finally:
        watchdog.communicate(timeout=SECONDS)


def find_binaries() -> Path:
    """Return where the programs of the server are."""
    found = [*Path("/usr/lib/postgresql").glob("*/bin")]
    if not found and (program := shutil.which("pg_ctl")):
        found = [Path(program).parent]
    if not found:
        skip_without("PostgreSQL")
    if os.geteuid() == 0:
        need("setpriv", path=ENVIRONMENT["PATH"])
    return max(found)


@contextmanager
def make_folder() -> Generator[Path]:
    """Make a folder that belongs to the user."""
    folder = _user_folder()
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def _user_folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="postgresql-"))
    shutil.chown(folder, USER)
    return folder


def as_user(*command: str) -> Sequence[str]:
    """Return *command* as that user runs it."""
    if os.geteuid() != 0:
        return command
    return ("setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", *command)


def run(*command: str) -> str:
    """Run *command* as that user, and return what it prints."""
    done = subprocess.run(
        as_user(*command),
        cwd="/",
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def set_clock_ahead(url: str, *, minutes: int) -> None:
    """Have the clock of a database be ahead of that of this machine, for connections from now."""
    ahead = f"SELECT pg_catalog.clock_of_machine() + interval '{minutes} minutes'"
    replace_clock(url, f"LANGUAGE sql AS $${ahead}$$")


def replace_clock(url: str, body: str) -> None:
    """Have *body* tell the time of a database; it can ask clock_of_machine()."""
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in (
            "SET allow_system_table_mods = on",
            "ALTER FUNCTION pg_catalog.clock_timestamp() RENAME TO clock_of_machine",
            f"CREATE FUNCTION pg_catalog.clock_timestamp() RETURNS timestamptz {body}",
        ):
            connection.execute(statement.encode())
