"""`forewarn db` on PostgreSQL; on a file it is in tests/cli/golden."""

import json
import os
import sqlite3
import subprocess
from collections.abc import Generator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import psycopg
import pytest
from tests.postgres import ENVIRONMENT, Cluster
from typer.testing import CliRunner, Result

from forewarn.cli.app import app
from forewarn.domain.access import TokenRevokedError
from forewarn.domain.roles import Role
from forewarn.files.fleet import read_fleet_file
from forewarn.operations.access import find_token, hash_secret
from forewarn.operations.context import Context
from forewarn.operations.inventory import apply_fleet
from forewarn.operations.pausing import find_pause
from forewarn.operations.restoring import AHEAD, take_over_backup
from forewarn.protocol.vocabulary import event_id
from forewarn.storage import sizes
from forewarn.storage.postgres import open_postgres
from forewarn.storage.sqlite import open_sqlite

pytestmark = pytest.mark.timeout(300)

AT = datetime(2026, 1, 5, 8, tzinfo=UTC)
FLEET = '[[virtual_machine]]\nname = "web-0"\n'
CONTEXT = Context(who="admin", now=AT, at=AT, new_id=lambda: event_id(f"{1:032x}"))


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FOREWARN_DATABASE", raising=False)
    with closing(open_sqlite(tmp_path / "forewarn.db")) as store:
        store.write(lambda tx: tx.put_setting("test", "here"))
        store.write(lambda tx: apply_fleet(tx, CONTEXT, read_fleet_file(FLEET)))
    return tmp_path


@pytest.fixture
def url(postgres: Cluster) -> Generator[str]:
    """The URL of an empty database."""
    made = postgres.empty_database()
    yield made
    postgres.drop(made)


def run(*arguments: str, code: int = 0) -> Result:
    result = CliRunner().invoke(app, ["db", *arguments])
    assert result.exit_code == code, result.output
    return result


def setting(url: str, name: str) -> str | None:
    with closing(open_postgres(url)) as store:
        return store.read(lambda reading: reading.setting(name))


def test_server_outgrows_its_machine_and_comes_back(url: str) -> None:
    there = run("copy", "forewarn.db", url)
    back = run("copy", url, "sqlite:///back.db")

    assert f"Moved forewarn.db to {url}" in there.stdout
    assert "1  virtual_machines" in there.stdout
    assert f"Start the server with --database {url}" in there.stderr
    assert f"Moved {url} to back.db" in back.stdout
    with closing(open_sqlite(Path("back.db"))) as store:
        assert store.read(lambda reading: reading.setting("test")) == "here"
        assert not store.read(lambda reading: reading.setting("backup_taken_at"))


def test_copy_of_a_database_in_use_says_that_it_is_a_backup(folder: Path, url: str) -> None:
    with closing(open_sqlite(folder / "forewarn.db")):
        said = run("copy", "forewarn.db", url)

    assert f"{url} is a backup of forewarn.db" in said.stdout
    assert "The server will start paused" in said.stderr
    assert setting(url, "backup_taken_at")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("nowhere.db", "URL"), "nowhere.db cannot be used"),
        (("mysql://u:secret@db/x", "URL"), "SOURCE is not a valid database name"),
        (("forewarn.db", "nowhere/new.db"), "its directory does not exist"),
        (("forewarn.db", "forewarn.db"), "forewarn.db is the source"),
        (("URL", "new.db"), "has an outdated schema"),
        (("postgresql://u:secret@127.0.0.1:1/x", "new.db"), "is not available"),
    ],
)
def test_what_cannot_be_copied_is_refused(
    url: str, arguments: tuple[str, ...], sentence: str
) -> None:
    result = CliRunner().invoke(app, ["db", "copy", *(url if a == "URL" else a for a in arguments)])

    assert result.exit_code in {1, 2}
    assert sentence in " ".join(result.stderr.split())
    assert "secret" not in result.output
    assert not Path("new.db").exists()


def test_backup_of_a_server_database_is_a_private_file_that_can_be_put_back(
    postgres: Cluster, url: str
) -> None:
    run("copy", "forewarn.db", url)

    with closing(open_postgres(url)):
        run("backup", "backup.db", "--database", url)
    run("backup", "backup.db", "--database", url, code=1)
    run("backup", "backup.db", "--overwrite", "--database", url)
    files = {path.name for path in Path().glob("backup.db*")}
    refused = run("restore", "backup.db", "--database", url, code=1)
    other = postgres.empty_database()
    run("restore", "backup.db", "--database", other)
    run("restore", "backup.db", "--database", "new.db")

    assert Path("backup.db").stat().st_mode & 0o777 == 0o600
    assert "is not empty; create a new database" in refused.stderr
    assert files == {"backup.db"}
    assert (setting(other, "test"), setting(url, "backup_taken_at")) == ("here", None)
    assert setting(other, "backup_taken_at")
    postgres.drop(other)


def test_check_says_what_the_server_is(url: str) -> None:
    empty = run("check", "--database", url)
    run("upgrade", "--database", url)
    well = run("check", "--database", url)
    with psycopg.connect(url) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '0022'")
    unreleased = run("check", "--database", url, code=1)
    refused = run("upgrade", "--database", url, code=1)
    away = run("check", "--database", "postgresql://127.0.0.1:1/x", code=1)

    assert "encoding UTF8" in empty.stdout
    assert "The database is empty; forewarn serve creates its tables." in empty.stdout
    assert "The database user can write." in well.stdout
    assert "The schema matches this version." in well.stdout
    assert "The schema is 0022, of an unreleased version." in unreleased.stdout
    assert "has schema 0022 of an unreleased version" in refused.stderr
    assert "is not available" in away.stdout


def test_database_that_cannot_keep_every_character_is_refused(postgres: Cluster) -> None:
    postgres.run_sql("CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0 LOCALE 'C'")
    url = postgres.url("latin")

    said = run("check", "--database", url, code=1)
    refused = run("upgrade", "--database", url, code=1)

    assert "its encoding is LATIN1" in said.stdout
    assert "create it with UTF8" in refused.stderr
    postgres.drop(url)


def test_database_restored_with_postgresqls_own_tools_is_marked(
    postgres: Cluster, url: str, tmp_path: Path
) -> None:
    run("copy", "forewarn.db", url)
    with psycopg.connect(url) as connection:  # as if the service had been running at the dump
        now = "extract(epoch FROM now()) * 1e6"
        values = f"'a', 'a', '', '', '{{}}', 0, {now}, 0, '[]'"
        connection.execute(f"INSERT INTO replicas SELECT {values}")
    other = postgres.empty_database()
    for command in (
        ("pg_dump", "--format=custom", f"--file={tmp_path}/dump", url),
        ("pg_restore", "--exit-on-error", f"--dbname={other}", f"{tmp_path}/dump"),
    ):
        program = str(postgres.binaries / command[0])
        environment = {**ENVIRONMENT, "HOME": os.devnull}
        subprocess.run([program, *command[1:]], env=environment, check=True, timeout=60)

    with closing(open_postgres(other)) as store:
        refused = run("mark-restored", "--database", other, code=1)
        number = store.write(lambda tx: tx.next_epoch())
    marked = run("mark-restored", "--database", other)
    run("mark-restored", "--database", "forewarn.db")

    with closing(open_postgres(other)) as store:
        before = store.read(lambda reading: reading.documents())
        assert store.write(lambda tx: take_over_backup(tx, CONTEXT))
        after = store.read(lambda reading: reading.documents())
        pause = store.read(find_pause)
    assert number == 1
    assert pause is not None
    assert before
    for scope_id, document in before.items():
        ahead = document.document_incarnation + AHEAD
        assert after[scope_id].document_incarnation > ahead
    assert "is in use; stop every replica first" in refused.stderr
    assert "as restored" in marked.stdout
    assert "Waiting up to 10 s" in marked.stderr
    assert setting(other, "test") == "here"
    assert setting(url, "backup_taken_at") is None
    postgres.drop(other)


@pytest.mark.parametrize(
    "words",
    [
        ("db", "upgrade", "--database"),
        ("db", "backup", "copy.db", "--database"),
        ("db", "check", "--database"),
        ("db", "copy", "forewarn.db"),
        ("db", "copy", "--", "copy.db"),
        ("db", "mark-restored", "--database"),
        ("db", "restore", "forewarn.db", "--database"),
        ("token", "renew-admin", "--database"),
        ("config", "show", "--database"),
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("is_there", [True, False])
def test_password_on_the_command_line_is_accepted_with_a_warning(
    url: str, words: tuple[str, ...], *, is_there: bool
) -> None:
    with_password = url.replace("forewarn@", "forewarn:hunter2@")
    command = [*words, with_password if is_there else f"{with_password}_gone"]
    if "--" in words:  # from there
        command = ["db", "copy", command[-1], "copy.db"]

    said = CliRunner().invoke(app, command)

    assert said.exit_code in ({0, 1} if is_there else {0, 1, 6}), said.output
    assert "can read the password on the command line" in said.stderr
    assert "PGPASSFILE" in said.stderr
    assert "hunter2" not in said.output
    assert "Traceback" not in said.output


def test_upgrade_leaves_a_newer_schema_alone_and_prints_no_log(tmp_path: Path) -> None:
    path = tmp_path / "forewarn.db"
    with closing(open_sqlite(path)):
        pass
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")

    said = CliRunner().invoke(app, ["db", "upgrade", "--database", str(path)])

    assert said.output == f"{path} is up to date\n"


@pytest.mark.parametrize(
    "words",
    [
        ("serve", "--fleet", "missing.toml", "--database", "X"),
        ("config", "show", "--database", "X"),
        ("db", "upgrade", "--database", "X"),
        ("db", "backup", "copy.db", "--database", "X"),
        ("db", "backup", "X/copy.db"),
        ("db", "check", "X"),
        ("db", "check", "--database", "X"),
        ("db", "copy", "X", "copy.db"),
        ("db", "copy", "forewarn.db", "X"),
        ("db", "mark-restored", "--database", "X"),
        ("db", "restore", "X"),
        ("token", "renew-admin", "--database", "X"),
        ("doctor",),
    ],
    ids=" ".join,
)
@pytest.mark.parametrize(
    "database", ["host=db password=hunter2", "postgresql:/u:hunter2@db/x", "//u:hunter2@db/x"]
)
def test_password_in_what_is_no_url_is_never_shown(
    words: tuple[str, ...], database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with closing(open_sqlite("forewarn.db")):
        pass
    if words == ("doctor",):
        monkeypatch.setenv("FOREWARN_DATABASE", database)

    said = CliRunner().invoke(app, [word.replace("X", database) for word in words])

    assert said.exit_code != 0
    assert "hunter2" not in said.output
    assert not [each for each in tmp_path.rglob("*") if "hunter2" in each.name]


def test_admin_token_of_all_replicas_is_renewed(url: str, tmp_path: Path) -> None:
    run("upgrade", "--database", url)
    words = ["token", "renew-admin", "--database", url, "--state-dir", str(tmp_path / "state")]
    secrets = []
    for _ in range(2):
        result = CliRunner().invoke(app, words)
        assert result.exit_code == 0, result.output
        secrets.append((tmp_path / "state" / "admin.token").read_text().strip())
        assert result.output == f"{tmp_path}/state/admin.token has a new admin token\n"

    with closing(open_postgres(url)) as store:
        token = store.read(lambda reading: find_token(reading, hash_secret(secrets[1]), AT))
        with pytest.raises(TokenRevokedError):
            store.read(lambda reading: find_token(reading, hash_secret(secrets[0]), AT))
    assert token is not None
    assert token.role is Role.ADMIN


def test_size_is_told_for_each_table_that_has_rows_the_largest_first(
    url: str,
) -> None:
    run("copy", "forewarn.db", url)
    answer = {}

    for where in ("forewarn.db", url):
        answer = json.loads(run("size", "--database", where, "-o", "json").stdout)

        tables = {each["table"]: each for each in answer["tables"]}
        sizes = [each["size"] for each in answer["tables"]]
        assert tables["virtual_machines"]["rows"] == 1
        assert tables["virtual_machines"]["oldest"] is None
        assert tables["memberships"]["oldest"] == AT.isoformat()
        assert "events" not in tables
        assert sizes == sorted(sizes, reverse=True)
        assert min(sizes) >= 4096
        assert sum(sizes) <= answer["size"]
    assert answer["free"] is None


def test_size_is_told_while_a_server_uses_the_database(folder: Path) -> None:
    with closing(open_sqlite(folder / "forewarn.db")) as store:
        measured = run("size")
        store.write(lambda tx: tx.put_setting("still", "here"))

    assert "virtual_machines" in measured.stdout
    assert "total:" in measured.stdout


def test_size_of_a_database_with_another_schema_is_not_told(url: str) -> None:
    refused = run("size", "--database", url, code=1)

    assert "forewarn db upgrade" in refused.stderr


def test_size_of_tables_is_left_out_where_sqlite_cannot_tell(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sizes, "_CAN_TELL", "SELECT 1 WHERE false")

    measured = run("size")

    assert "virtual_machines  1" in measured.stdout
    assert measured.stdout.count("KiB") == 2, "the whole, and what is free of it"
