"""`forewarn doctor`: each check, well and in the trouble it is there for."""

import json
import os
import re
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import structlog
from tests.cli.test_golden import serving
from tests.needs import PATH, find_program, need, need_namespaces
from tests.ports import free_port
from typer.testing import CliRunner

from forewarn.cli.app import app
from forewarn.cli.doctor import unless_reported
from forewarn.cli.examination.database import examine_database
from forewarn.cli.examination.machine import examine_machine
from forewarn.cli.settings import CliSettings
from forewarn.domain.finding import FindingVerdict, fine, wrong
from forewarn.domain.notification import Notification
from forewarn.environment import environment_with
from forewarn.operations.findings import CHECKS
from forewarn.operations.notifications import example_notification
from forewarn.ports.store import Transaction
from forewarn.settings import Settings, make_settings
from forewarn.settings_table import ClockKind
from forewarn.storage import schema
from forewarn.storage.schema import HEAD
from forewarn.storage.sqlite import open_sqlite

FOREWARN = Path(sys.executable).with_name("forewarn")
TIMEOUT = 45
ANYBODY = "VMs are identified by /vm/NAME in the path, so any caller can be any VM."
Found = Mapping[str, tuple[str, str, str]]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in (*Settings.model_fields, *(each.name for each in fields(CliSettings))):
        monkeypatch.delenv(f"FOREWARN_{name.upper()}", raising=False)
    monkeypatch.setenv("FOREWARN_METADATA", f"127.0.0.1:{free_port()}")
    monkeypatch.setenv("FOREWARN_CONTROL", f"127.0.0.1:{free_port()}")
    return tmp_path


def examine(*arguments: str, **environment: str) -> tuple[int, Found]:
    command = ["doctor", "-o", "json", *arguments]
    result = CliRunner().invoke(app, command, env=environment)
    answer = json.loads(result.stdout)
    found = {
        each["check"]: (each["verdict"], each["sentence"], each["hint"])
        for each in answer["findings"]
    }
    has_failed = any(verdict == "fail" for verdict, _, _ in found.values())
    assert (result.exit_code, answer["is_well"]) == (int(has_failed), not has_failed)
    return result.exit_code, found


@pytest.fixture
def database() -> Path:
    path = Path("forewarn.db")
    open_sqlite(path).close()
    return path


@pytest.fixture
def settings() -> Settings:
    return make_settings({"clock": ClockKind.VIRTUAL})


@contextmanager
def served(settings: Settings, metadata_port: int = 0) -> Iterator[str]:
    """Run a server; its address."""
    try:
        with serving(settings, metadata_port) as address:
            yield address
    finally:
        structlog.reset_defaults()


def test_running_server_is_well(database: Path, settings: Settings) -> None:
    with served(settings) as address:
        code, found = examine(FOREWARN_SERVER=address)

    assert {verdict for verdict, _, _ in found.values()} == {"ok"}, found
    assert code == 0
    assert found["token"][1] == "The token is valid; its role is admin."
    assert found["scheduler lease"][1] == "The server holds the lease, epoch 1."
    assert found["database"][1].startswith(f"{database} is intact")


def test_every_check_is_documented(settings: Settings) -> None:
    with served(settings) as address:
        _, found = examine(FOREWARN_SERVER=address, FOREWARN_METADATA="203.0.113.7:80")

    root = Path(__file__).parents[2]
    page = (root / "docs/reference/operating.md").read_text(encoding="utf-8")
    elsewhere = {
        *CHECKS,
        *re.findall(
            r'(?:wrong|doubtful)\(\s*"([^"]+)"',
            (root / "src/forewarn/cli/examination/database.py").read_text("utf-8"),
        ),
    } - {"integrity", "privacy"}  # only `forewarn db check` has these
    documented = {
        name
        for line in page.partition("## What doctor checks")[2].splitlines()
        if line.startswith("| ")
        for name in line.split(" | ")[0].removeprefix("| ").split(", ")
    }
    assert {"tasks", "windows", "permission"} <= elsewhere
    assert found.keys() | elsewhere <= documented


def test_it_prints_a_line_each_and_what_to_do() -> None:
    result = CliRunner().invoke(app, ["doctor"])

    lines = result.stdout.splitlines()
    assert lines[0] == "ok    configuration     forewarn.toml does not exist; defaults apply."
    assert lines[-2].startswith("fail  control endpoint  Cannot connect to http://127.0.0.1:")
    assert lines[-1].strip() == "try: forewarn serve, or --server URL"
    assert result.exit_code == 1


def test_configuration_that_cannot_be_read_fails(folder: Path) -> None:
    (folder / "bad.toml").write_text("speed = fast")

    _, found = examine("--config", "bad.toml")

    verdict, sentence, hint = found["configuration"]
    assert (verdict, hint) == ("fail", "try: forewarn serve --help")
    assert sentence.startswith("bad.toml is not valid TOML")
    assert "state directory" not in found


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ('database = "postgresql://u:hunter2@127.0.0.1:1/x"', "database"),
        ('proxy_secret = "hunter2"', "proxy_secret"),
    ],
)
def test_file_with_a_secret_that_others_can_read_is_worth_a_warning(
    folder: Path, line: str, name: str
) -> None:
    file = folder / "forewarn.toml"
    file.write_text(f"{line}\n")
    said = []
    for mode in (0o640, 0o600):
        file.chmod(mode)
        said.append(examine()[1]["configuration"])

    assert said == [
        (
            "warn",
            f"Other users on this machine can read forewarn.toml, which contains secrets: {name}.",
            "try: chmod 600 forewarn.toml",
        ),
        ("ok", "forewarn.toml is readable.", ""),
    ]


def test_missing_state_directory_fails() -> None:
    _, found = examine(FOREWARN_STATE_DIR="nowhere")

    assert found["state directory"][0] == "fail"
    assert found["state directory"][2].startswith("try: mkdir -p ")


def test_state_directory_that_cannot_be_written_fails(folder: Path) -> None:
    (folder / "locked").mkdir(mode=0o555)
    drop = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"] if os.geteuid() == 0 else []
    need(*drop[:1])
    code = (
        "from pathlib import Path; from forewarn.cli.examination.machine import _state_directory; "
        "print(_state_directory(Path('locked')).verdict)"
    )
    said = subprocess.run(
        [*drop, sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=True,
    )

    assert said.stdout == "fail\n"


def test_directory_that_its_server_reports_is_one_finding() -> None:
    sentence = "/var/lib/forewarn cannot be written: No space left on device."
    here = wrong("state directory", sentence, "free space")
    there = replace(
        here, sentence=f"Replica db-1 at db-1:8170: {sentence}".replace(" can", "/tasks can")
    )

    assert [*unless_reported([here], [there])] == []
    assert [*unless_reported([here], [fine("state directory", "All can be written.")])] == [here]


def test_database_that_others_can_read_is_doubtful(database: Path) -> None:
    database.chmod(0o640)

    verdict, sentence, hint = examine()[1]["database"]

    assert verdict == "warn"
    assert "other users on this machine can read it" in sentence
    assert "chmod 600" in hint


def test_token_that_others_can_read_fails(folder: Path) -> None:
    (folder / "admin.token").write_text("open-sesame-for-tests")
    (folder / "admin.token").chmod(0o644)

    _, found = examine()

    assert found["admin token"] == (
        "fail",
        "Other users on this machine can read admin.token, which grants full access.",
        "try: chmod 600 admin.token",
    )


@pytest.mark.parametrize(
    ("values", "verdict", "sentence"),
    [
        ({}, FindingVerdict.OK, "VMs are identified by source IP."),
        (
            {"trusted_proxies": ["10.0.0.1"], "proxy_secret": "x", "default_vm": "a"},
            FindingVerdict.OK,
            (
                "VMs are identified by source IP; headers signed by 10.0.0.1; other local callers "
                "are a."
            ),
        ),
        (
            {"trust_path": True, "metadata": ["127.0.0.1:1", "unix:x", "localhost:1"]},
            FindingVerdict.OK,
            ANYBODY,
        ),
        (
            {"trust_path": True, "metadata": ["127.0.0.1:1", "192.0.2.1:80"]},
            FindingVerdict.WARN,
            ANYBODY,
        ),
        ({"trust_path": True, "metadata": ["example.org:80"]}, FindingVerdict.WARN, ANYBODY),
    ],
)
def test_it_says_what_is_trusted(
    values: dict[str, object], verdict: FindingVerdict, sentence: str
) -> None:
    free = {"metadata": [f"127.0.0.1:{free_port()}"]}
    findings = examine_machine(make_settings({**free, **values}))
    (found,) = (each for each in findings if each.check == "callers")

    assert (found.verdict, found.sentence) == (verdict, sentence)


@pytest.mark.parametrize(
    ("trust_path", "sentence"), [(True, ANYBODY), (False, "VMs are identified by source IP.")]
)
def test_running_server_says_whether_it_trusts_paths(*, trust_path: bool, sentence: str) -> None:
    port = free_port()
    running = make_settings({"clock": ClockKind.VIRTUAL, "trust_path": trust_path})
    with served(running, port):
        _, found = examine(
            FOREWARN_METADATA=f"127.0.0.1:{port}",
            FOREWARN_TRUST_PATH=str(not trust_path),
        )

    assert found["callers"][:2] == ("ok", sentence)


def test_network_disk_fails(folder: Path) -> None:
    (folder / "mounts").write_text(f"/dev/sda1 / ext4 rw 0 0\nnas:/x {folder} nfs4 rw 0 0\n")

    settings = make_settings({"metadata": (f"127.0.0.1:{free_port()}",)})
    findings = examine_machine(settings, mounts=folder / "mounts")
    (found,) = (each for each in findings if each.check == "local disk")

    assert found.verdict is FindingVerdict.FAIL
    assert found.sentence == f"{folder} is on nfs4; SQLite needs a local disk."


@pytest.mark.parametrize(("size", "verdict"), [("1m", "fail"), ("100m", "warn")])
def test_disk_with_little_space_is_told(folder: Path, size: str, verdict: str) -> None:
    need_namespaces("--map-root-user", "--mount")
    (folder / "small").mkdir()
    found = examine_mounted(f"-o size={size}", "true", "sqlite:///small/forewarn.db")

    assert found["disk space"] == verdict


def test_disk_of_the_state_directory_is_looked_at_if_the_database_is_elsewhere(
    folder: Path,
) -> None:
    need_namespaces("--map-root-user", "--mount")
    (folder / "small").mkdir()
    fill = "{ head -c 1m /dev/zero > small/filler 2> /dev/null || true; }"
    url = f"postgresql://127.0.0.1:{free_port()}/forewarn"

    little = examine_mounted("-o size=64k", "true", url)
    full = examine_mounted("-o size=64k", fill, url)

    assert (little["state directory"], little["disk space"]) == ("ok", "fail")
    assert full["state directory"] == "fail"
    assert not {"disk space", "local disk"} & full.keys()


def examine_mounted(options: str, then: str, database: str) -> Mapping[str, str]:
    """Mount a file system in memory as the state directory `small`; the verdicts of its doctor."""
    script = f'mount -t tmpfs {options} none small && {then} && exec "$0" doctor -o json'
    environment = environment_with(
        {
            "FOREWARN_DATABASE": database,
            "FOREWARN_STATE_DIR": "small",
            "FOREWARN_METADATA": f"127.0.0.1:{free_port()}",
        }
    )
    said = subprocess.run(
        [find_program("unshare"), "--map-root-user", "--mount", "sh", "-c", script, FOREWARN],
        env=environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )
    return {each["check"]: each["verdict"] for each in json.loads(said.stdout)["findings"]}


def damage(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[4096:] = b"\xff" * (len(content) - 4096)
    path.write_bytes(content)


@pytest.fixture
def older_release(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have there been a release before this one, whose databases have the schema 0050."""
    monkeypatch.setattr(schema, "REVISIONS", ("0050", HEAD))


def say_version(version: str, works_with: str) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        with sqlite3.connect(path) as connection:
            connection.execute("UPDATE alembic_version SET version_num = ?", [version])
            change = "UPDATE settings SET value = ? WHERE name = 'schema_works_with'"
            connection.execute(change, [works_with])
        connection.close()

    return change


@pytest.mark.parametrize(
    ("change", "verdict", "said"),
    [
        (damage, "fail", "is damaged"),
        (lambda path: path.write_text("notes"), "fail", "is not a forewarn database"),
        (say_version("9999", "9999"), "fail", "has schema 9999, which this release does not"),
        (say_version("9999", HEAD), "ok", "has schema 9999, which this release can use"),
        (say_version("0050", "0050"), "warn", "of an older release"),
        (say_version("0022", "0022"), "fail", "has schema 0022 of an unreleased version"),
    ],
)
@pytest.mark.usefixtures("older_release")
def test_whether_the_database_can_be_served_is_told(
    database: Path, change: Callable[[Path], object], verdict: str, said: str
) -> None:
    change(database)

    _, found = examine()

    assert found["database"][0] == verdict
    assert said in found["database"][1]


@pytest.mark.parametrize(
    ("change", "verdict", "said"),
    [
        (
            say_version("9999", "9999"),
            "fail",
            "The schema is 9999, which this version does not know",
        ),
        (say_version("9999", HEAD), "ok", "The schema is 9999, which this version can use"),
        (say_version("0050", "0050"), "warn", "The schema is 0050; this version needs"),
        (say_version("0022", "0022"), "fail", "The schema is 0022, of an unreleased version"),
    ],
)
@pytest.mark.usefixtures("older_release")
def test_check_of_a_database_says_whether_this_version_can_use_it(
    database: Path, change: Callable[[Path], object], verdict: str, said: str
) -> None:
    change(database)

    (schema,) = (
        each
        for each in examine_database(make_settings({"database": f"sqlite:///{database}"}))
        if each.check == "schema"
    )

    assert schema.verdict == verdict
    assert said in schema.sentence


@pytest.mark.parametrize("name", ["metadata", "control"])
def test_port_of_another_program_fails(name: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        _, found = examine(**{f"FOREWARN_{name.upper()}": f"127.0.0.1:{port}"})

    assert found[f"{name} port"] == (
        "fail",
        f"Another program listens on 127.0.0.1:{port}.",
        f"try: ss -ltnp 'sport = :{port}'",
    )


def test_ports_of_a_forewarn_that_runs_are_fine(settings: Settings) -> None:
    with served(settings) as control:
        _, found = examine(FOREWARN_CONTROL=control)

    assert found["control port"][:2] == ("ok", f"A forewarn server uses {control}.")


def test_metadata_address_on_no_interface_fails() -> None:
    _, found = examine(FOREWARN_METADATA="203.0.113.7:80")

    assert found["metadata address"] == (
        "fail",
        "No interface of this machine has the address 203.0.113.7.",
        "try: ip address add 203.0.113.7 dev INTERFACE",
    )
    assert found["metadata port"][0] == "fail"


def test_metadata_address_on_an_interface_is_fine() -> None:
    need("ip", path=PATH)
    need_namespaces("--map-root-user", "--net")
    script = (
        'ip link set lo up && ip address add 169.254.169.254 dev lo && exec "$0" doctor -o json'
    )
    said = subprocess.run(
        [find_program("unshare"), "--map-root-user", "--net", "sh", "-c", script, FOREWARN],
        env=environment_with({"FOREWARN_METADATA": "169.254.169.254:80"}),
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )

    found = {each["check"]: each["verdict"] for each in json.loads(said.stdout)["findings"]}
    assert (found["metadata address"], found["metadata port"]) == ("ok", "ok")


def test_socket_without_a_directory_fails() -> None:
    _, found = examine(FOREWARN_METADATA="unix:nowhere/metadata.sock")

    assert found["metadata port"][0] == "fail"


def test_remote_looks_at_the_server_only() -> None:
    _, found = examine("--remote")

    assert found.keys() == {"control endpoint"}
    assert found["control endpoint"][0] == "fail"


def test_unknown_token_fails(settings: Settings) -> None:
    with served(settings) as address:
        _, found = examine("--remote", FOREWARN_SERVER=address, FOREWARN_TOKEN="wrong")  # noqa: S106

    assert found["token"][0] == "fail"
    assert "Unknown token." in found["token"][1]
    assert found.keys() == {"control endpoint", "clock skew", "token"}


def test_without_a_token_it_says_that_the_server_answers_and_needs_one(settings: Settings) -> None:
    with served(settings) as address:
        Path("admin.token").rename("elsewhere.token")
        _, found = examine("--remote", FOREWARN_SERVER=address)

    verdicts = {check: verdict for check, (verdict, _, _) in found.items()}
    assert verdicts == {"control endpoint": "ok", "clock skew": "ok", "token": "fail"}
    assert "FOREWARN_TOKEN" in found["token"][2]


def test_server_that_answers_only_once_is_a_problem_of_the_endpoint() -> None:
    """A balancer may have sent the second request to a replica that is not well."""
    with stand_in(ahead=timedelta(0), is_cut=True) as address:
        code, found = examine("--remote", FOREWARN_SERVER=address)

    assert code == 1
    assert set(found) == {"control endpoint"}


def test_role_is_told(settings: Settings) -> None:
    with served(settings) as address:
        order = ["token", "create", "grafana", "--role", "viewer", "-o", "json"]
        made = CliRunner().invoke(app, order, env={"FOREWARN_SERVER": address})
        secret = json.loads(made.stdout)["secret"]
        _, found = examine("--remote", FOREWARN_SERVER=address, FOREWARN_TOKEN=secret)

    assert found["token"][:2] == ("ok", "The token is valid; its role is viewer.")


@contextmanager
def stand_in(
    *, ahead: timedelta, server: Mapping[str, object] | None = None, is_cut: bool = False
) -> Iterator[str]:
    """Say that it is alive, and what *server* is unless *is_cut*; its clock is *ahead*."""

    class Handler(BaseHTTPRequestHandler):
        def date_time_string(self, _timestamp: float | None = None) -> str:
            return f"{datetime.now(UTC) + ahead:%a, %d %b %Y %H:%M:%S} GMT"  # noqa: TID251

        def do_GET(self) -> None:
            body = json.dumps(server or {"status": "ok"}).encode()
            is_refused = server is None and self.path.startswith("/api/")
            if is_refused and is_cut:
                self.close_connection = True
                return
            self.send_response(401 if is_refused else 200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listener:
        thread = threading.Thread(target=listener.serve_forever)
        thread.start()
        yield f"127.0.0.1:{listener.server_port}"
        listener.shutdown()
        thread.join(TIMEOUT)


@pytest.mark.parametrize(
    ("ahead", "verdict"),
    [(timedelta(seconds=30), "warn"), (timedelta(hours=-1), "fail")],
)
def test_clock_that_is_off_is_told(ahead: timedelta, verdict: str) -> None:
    with stand_in(ahead=ahead) as address:
        _, found = examine("--remote", FOREWARN_SERVER=address)

    assert found["clock skew"][0] == verdict


def test_clock_of_a_replica_that_differs_from_the_database_is_told_once() -> None:
    reported = {"check": "database clock", "verdict": "fail", "sentence": "Off.", "hint": "try: x"}
    said = {"role": "admin", "findings": [reported]}
    with stand_in(ahead=timedelta(hours=1), server=said) as address:
        _, found = examine("--remote", FOREWARN_SERVER=address)

    assert found.keys() == {"control endpoint", "token", "database clock"}


def test_lease_that_was_lost_is_held_again_soon(settings: Settings) -> None:
    with served(settings) as address:
        with sqlite3.connect(settings.database_path) as connection:
            connection.execute("UPDATE leases SET epoch = epoch + 1")
        connection.close()
        deadline = time.monotonic() + TIMEOUT
        held = "The server holds the lease, epoch 3"
        while not (found := examine_lease(address))[1].startswith(held):
            assert time.monotonic() < deadline
            assert found[0] == "fail", found

    assert found[0] == "ok"


def examine_lease(address: str) -> tuple[str, str, str | None]:
    _, found = examine("--remote", FOREWARN_SERVER=address)
    return found["scheduler lease"]


def message(name: str, now: datetime) -> Notification:
    return example_notification("pager", notification_id=name, who="admin", now=now, at=now)


def test_messages_that_were_given_up_are_told(settings: Settings) -> None:
    store = open_sqlite(settings.database_path)
    now = datetime(2026, 1, 5, 8, tzinfo=UTC)
    store.write(lambda tx: tx.put_notification(message("m", now)))
    store.close()

    with served(settings) as address:  # which knows no pager
        _, found = examine("--remote", FOREWARN_SERVER=address)

    assert found["outbox"] == (
        "warn",
        "Failed messages: 1.",
        "try: forewarn notification list --failed",
    )


def test_messages_that_wait_for_long_are_told(settings: Settings) -> None:
    def put(tx: Transaction) -> None:
        tx.put_notification(message("m", datetime(2026, 1, 5, 8, tzinfo=UTC)))

    Path("notifications.toml").write_text(
        '[[target]]\nname = "pager"\nkind = "webhook"\nurl = "http://127.0.0.1:1/"\n'
    )
    store = open_sqlite(settings.database_path)
    store.write(put)
    store.close()

    told = make_settings({"clock": ClockKind.VIRTUAL, "notifications": "notifications.toml"})
    with served(told) as address:
        _, found = examine("--remote", FOREWARN_SERVER=address)

    assert found["outbox"][0] == "warn"
    assert found["outbox"][2] == "try: forewarn notification list --waiting"


def test_overdue_events_are_told(settings: Settings) -> None:
    with served(settings) as address:
        for order in (
            "vm add solo",
            "event create --type Reboot --resource solo --started --yes",
            "clock advance 2h",
        ):
            done = CliRunner().invoke(app, order.split(), env={"FOREWARN_SERVER": address})
            assert done.exit_code == 0, done.output
        _, found = examine("--remote", FOREWARN_SERVER=address)

    assert found["overdue events"] == (
        "warn",
        "Events that take longer than announced: 1.",
        "try: forewarn event list --status Started",
    )
