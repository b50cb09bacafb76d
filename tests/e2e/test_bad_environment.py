"""Where the server cannot work, it says why in one line and leaves everything as it was."""

import contextlib
import os
import shutil
import socket
import sqlite3
import subprocess
import time
from collections.abc import Callable, Generator, Mapping
from pathlib import Path

import pytest
from tests.e2e.conftest import ANSWER_SECONDS, FLEET, Server, ServerMaker, wait_until
from tests.e2e.forks import Forks
from tests.needs import need_root, skip_without

DISK = 2 * 1024 * 1024
IS_ROOT = os.geteuid() == 0


@pytest.fixture(scope="module")
def made(
    tmp_path_factory: pytest.TempPathFactory, environment: Mapping[str, str], forks: Forks
) -> Path:
    """Return a folder with the files of a server that has stopped: a fleet and an event."""
    folder = tmp_path_factory.mktemp("made")
    fleet = folder / "fleet.toml"
    fleet.write_text(FLEET, encoding="utf-8")
    data = folder / "data"
    data.mkdir()
    server = Server(
        database=data / "forewarn.db",
        fleet=fleet,
        flags=(),
        environment=environment,
        log=folder / "server.log",
        forks=forks,
    )
    try:
        server.start()
        server.create("Reboot", "web-0")
        assert server.stop() == 0
    finally:
        server.kill()
    return data


@pytest.fixture
def data(made: Path, tmp_path: Path) -> Path:
    """Return a folder of this test with a copy of those files."""
    folder = tmp_path / "data"
    shutil.copytree(made, folder, dirs_exist_ok=True)
    return folder


@pytest.fixture
def small_disk(tmp_path: Path) -> Generator[Path]:
    """Return a file system of two megabytes."""
    folder = tmp_path / "disk"
    folder.mkdir()
    _mount("-t", "tmpfs", "-o", f"size={DISK}", "forewarn-test", str(folder))
    yield folder
    _run("umount", "--lazy", str(folder))


def _mount(*arguments: str) -> None:
    need_root("mount a disk")
    done = _run("mount", *arguments)
    if done.returncode:
        pytest.skip(f"needs a small file system; let root mount one: {done.stderr.strip()}")


def _run(command: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    path = shutil.which(command)
    assert path is not None, f"there is no {command}"
    return subprocess.run([path, *arguments], capture_output=True, text=True, check=False)


def _fill(folder: Path) -> Path:
    """Leave no space on the disk of *folder*; return the file to remove for it to come back."""
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))
    return filler


def _files(folder: Path) -> dict[str, bytes]:
    """Return what is there, but for the tools of who has it open, which hold no data."""
    files = {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and not path.name.endswith((".lock", "-shm"))
    }
    return {name: content for name, content in files.items() if content or name[-4:] != "-wal"}


def _refuse(server: Server) -> str:
    """Start where it cannot be, and return the one line that says why."""
    done = server.run_to_the_end()
    lines = done.stderr.splitlines()
    assert done.returncode != 0, done
    assert done.stdout == ""
    assert lines, "it says nothing"
    assert all(line.startswith("  ") for line in lines[1:]), f"more than a line and a hint: {lines}"
    assert len(lines) <= 2, lines
    assert "Traceback" not in done.stderr
    return lines[0]


def _unprivileged() -> tuple[str, ...]:
    """Return what to start with so that permissions count, for root too."""
    if not IS_ROOT:
        return ()
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        skip_without("setpriv")
    return (setpriv, "--bounding-set", "-dac_override,-dac_read_search", "--")


def _overwrite_the_middle(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[4096 : len(content) - 4096] = b"\xa5" * (len(content) - 8192)
    file.write_bytes(content)


def _write_text(file: Path) -> None:
    file.write_text("name,address\nweb-0,10.0.0.10\n" * 100, encoding="utf-8")


def _make_a_database_of_something_else(file: Path) -> None:
    file.unlink()
    with contextlib.closing(sqlite3.connect(file)) as database:
        database.execute("CREATE TABLE bookmarks (url TEXT)")


def _make_a_directory(file: Path) -> None:
    file.unlink()
    file.mkdir()


def _make_newer(file: Path) -> None:
    with contextlib.closing(sqlite3.connect(file)) as database, database:
        database.execute("UPDATE alembic_version SET version_num = '9999'")
        database.execute("DELETE FROM settings WHERE name = 'schema_works_with'")


def _make_unreleased(file: Path) -> None:
    with contextlib.closing(sqlite3.connect(file)) as database, database:
        database.execute("UPDATE alembic_version SET version_num = '0022'")


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (_overwrite_the_middle, "damaged"),
        (_write_text, "is not a forewarn database"),
        (_make_a_database_of_something_else, "is not a forewarn database"),
        (_make_a_directory, "is not a regular file"),
        (_make_newer, "schema 9999, which this release does not know"),
        (_make_unreleased, "schema 0022 of an unreleased version"),
    ],
)
def test_database_that_cannot_be_used_is_refused_and_left_alone(
    make_server: ServerMaker, data: Path, spoil: Callable[[Path], None], reason: str
) -> None:
    server = make_server()
    spoil(server.database)
    before = _files(data)

    line = _refuse(server)

    assert str(server.database) in line
    assert reason in line
    assert _files(data) == before


def test_database_in_a_folder_that_does_not_exist_is_refused(
    make_server: ServerMaker, tmp_path: Path
) -> None:
    line = _refuse(make_server(database=tmp_path / "nowhere" / "forewarn.db"))

    assert "its directory does not exist" in line
    assert not (tmp_path / "nowhere").exists()


def test_read_only_database_is_refused(make_server: ServerMaker, data: Path) -> None:
    server = make_server(prefix=_unprivileged())
    server.database.chmod(0o444)
    before = _files(data)

    line = _refuse(server)

    assert f"{server.database} cannot be used: it is read-only" in line
    assert _files(data) == before


def test_read_only_folder_is_refused(make_server: ServerMaker, data: Path) -> None:
    server = make_server(prefix=_unprivileged())
    before = _files(data)
    data.chmod(0o555)

    line = _refuse(server)

    data.chmod(0o755)
    assert "its directory is not writable" in line
    assert _files(data) == before


def test_read_only_disk_is_refused(make_server: ServerMaker, data: Path, small_disk: Path) -> None:
    shutil.copytree(data, small_disk, dirs_exist_ok=True)
    before = _files(small_disk)
    _mount("-o", "remount,ro", str(small_disk))

    line = _refuse(make_server(database=small_disk / "forewarn.db"))

    assert "it is read-only" in line
    assert _files(small_disk) == before


def test_server_whose_state_directory_became_read_only_stops_in_order(
    make_server: ServerMaker, small_disk: Path
) -> None:
    server = make_server("--state-dir", str(small_disk))
    server.start()
    # A disk with open files cannot be remounted, but can be covered.
    _mount("--bind", str(small_disk), str(small_disk))
    _mount("-o", "remount,bind,ro", str(small_disk))
    try:
        code, said = server.stop(), server.said()
        line = _refuse(server)
    finally:
        _run("umount", str(small_disk))

    assert (code, "Traceback" in said) == (0, False), said
    assert f"{small_disk}/tasks: Read-only file system." in line


def test_full_disk_is_refused_until_there_is_space(
    make_server: ServerMaker, data: Path, small_disk: Path
) -> None:
    shutil.copytree(data, small_disk, dirs_exist_ok=True)
    server = make_server(database=small_disk / "forewarn.db")
    filler = _fill(small_disk)
    before = _files(small_disk)

    line = _refuse(server)
    after = _files(small_disk)
    filler.unlink()
    server.start()

    assert "space" in line
    assert after == before
    assert len(server.poll("web-0").events) == 1


def test_full_disk_is_left_without_a_new_database(
    make_server: ServerMaker, small_disk: Path
) -> None:
    _fill(small_disk)
    before = _files(small_disk)

    line = _refuse(make_server(database=small_disk / "forewarn.db"))

    assert "the disk is full" in line
    assert _files(small_disk) == before


def test_admin_token_that_did_not_fit_on_the_disk_is_made_at_the_next_start(
    make_server: ServerMaker, small_disk: Path
) -> None:
    server = make_server("--state-dir", str(small_disk))
    filler = _fill(small_disk)

    line = _refuse(server)
    filler.unlink()
    server.start()

    assert "admin token" in line
    assert (small_disk / "admin.token").read_text(encoding="ascii").strip()


def test_second_server_on_a_database_is_refused_and_the_first_goes_on(
    make_server: ServerMaker, start_server: ServerMaker
) -> None:
    first = start_server()

    line = _refuse(make_server())

    assert f"{first.database} is in use by another forewarn server" in line
    assert first.create("Reboot", "web-0")
    assert first.stop() == 0


@pytest.mark.parametrize(
    ("port", "flag"), [("metadata_port", "--metadata"), ("control_port", "--control")]
)
def test_port_in_use_is_refused(make_server: ServerMaker, data: Path, port: str, flag: str) -> None:
    server = make_server()
    before = _files(data)

    with socket.create_server(("127.0.0.1", getattr(server, port))):
        line = _refuse(server)

    assert f"Cannot listen on 127.0.0.1:{getattr(server, port)}" in line
    assert f"Address already in use. Choose another address with {flag}." in line
    assert _files(data) == before


def test_unknown_default_vm_is_refused(make_server: ServerMaker, data: Path) -> None:
    before = _files(data)

    line = _refuse(make_server("--default-vm", "web-9"))

    assert "web-9" in line
    assert _files(data) == before


@pytest.mark.parametrize(
    ("addition", "lines"),
    [
        ("[[virtual_machine]\n", {1}),
        ('[[virtual_machine]]\nname = "web-3"\nadresses = []\n', {3}),
        (
            '[[virtual_machine]]\nname = "web-3"\navailability_set = "web"\nupdate_domain = 7\n',
            {2, 4},
        ),
    ],
)
def test_broken_fleet_file_is_refused_with_its_line(
    make_server: ServerMaker, data: Path, addition: str, lines: set[int]
) -> None:
    server = make_server()
    server.fleet.write_text(FLEET + addition, encoding="utf-8")
    before = _files(data)

    line = _refuse(server)

    numbers = {len(FLEET.splitlines()) + number for number in lines}
    places = {place for number in numbers for place in (f":{number}: ", f"line {number},")}
    assert str(server.fleet) in line
    assert any(place in line for place in places), f"{line} has none of {places}"
    assert _files(data) == before


def test_fleet_file_that_does_not_exist_is_refused(make_server: ServerMaker, data: Path) -> None:
    server = make_server()
    server.fleet.unlink()
    before = _files(data)

    line = _refuse(server)

    assert str(server.fleet) in line
    assert _files(data) == before


@pytest.mark.parametrize(
    "flags",
    [
        ("--clock", "virtual", "--fleet", "{broken}"),
        ("--clock", "virtual", "--default-vm", "web-9"),
    ],
)
def test_mistake_at_the_first_start_leaves_no_database_behind(
    make_server: ServerMaker, tmp_path: Path, flags: tuple[str, ...]
) -> None:
    """Else the clock of a start that never was would bind the next one."""
    broken = tmp_path / "broken.toml"
    broken.write_text("[[virtual_machine]]\n", encoding="utf-8")
    server = make_server(*(flag.format(broken=broken) for flag in flags))

    _refuse(server)

    assert _files(server.database.parent) == {}


@pytest.mark.parametrize(
    ("flags", "setting"),
    [
        (("--speed", "0"), "speed"),
        (("--speed", "60", "--clock", "virtual"), "speed"),
    ],
)
def test_wrong_setting_is_refused(
    make_server: ServerMaker, data: Path, flags: tuple[str, ...], setting: str
) -> None:
    before = _files(data)

    line = _refuse(make_server(*flags))

    assert f" setting {setting}" in line
    assert _files(data) == before


def test_wrong_setting_in_environment_or_file_is_refused(
    make_server: ServerMaker, tmp_path: Path
) -> None:
    config = tmp_path / "forewarn.toml"
    config.write_text('executer = "simulated"\n', encoding="utf-8")
    from_file, from_environment = make_server("--config", str(config)), make_server()
    from_environment.environment = {**from_environment.environment, "FOREWARN_CLOCK": "stopped"}

    assert "unknown setting 'executer'" in _refuse(from_file)
    assert "Invalid setting clock" in _refuse(from_environment)


def test_outdated_database_is_refused_without_migrations(make_server: ServerMaker) -> None:
    server = make_server("--no-migrate")

    line = _refuse(server)

    assert "run `forewarn db upgrade` first" in line
    assert _files(server.database.parent) == {}


def test_full_disk_stops_writes_and_not_polls(start_server: ServerMaker, small_disk: Path) -> None:
    flags = ("--executor", "simulated", "--speed", "600")  # notice is 1.5 s, a Reboot takes 1 s
    server = start_server(*flags, database=small_disk / "forewarn.db")
    (waiting,) = server.create("Reboot", "web-1", not_before="1h")
    (due,) = server.create("Reboot", "solo-1")
    filler = _fill(small_disk)
    _write_until_refused(server)
    document = server.poll("web-0")

    assert server.poll("solo-0").status == 200
    refused = server.approve("web-1", waiting["event_id"])
    assert (refused.status, refused.headers["content-type"]) == (
        503,
        document.headers["content-type"],
    )
    assert server.operate("POST", "virtual-machines/web-0/restart").status == 503
    assert server.operate("POST", "fleet", {"fleet": {"host": [{"name": "kvm-1"}]}}).status == 503
    assert server.operate("GET", f"events/{waiting['event_id']}").status == 200
    assert (server.health("/readyz"), server.health("/readyz/write")) == (200, 503)
    time.sleep(2)  # past the NotBefore of what is due, which cannot be recorded as Started
    assert server.event(due["event_id"])["event_status"] == "Scheduled"
    assert server.poll("web-0").body == document.body

    filler.unlink()
    assert server.operate("POST", "virtual-machines/web-0/restart").status == 201
    assert server.approve("web-1", waiting["event_id"]).status == 200
    for event in (waiting, due):
        server.wait_for(event["event_id"], "Completed")
    assert "Traceback" not in server.said()


def test_server_is_ready_for_writes_again_when_there_is_space(
    start_server: ServerMaker, small_disk: Path
) -> None:
    """Who watches /readyz/write sends no write before it says that writes are taken."""
    server = start_server(database=small_disk / "forewarn.db")
    filler = _fill(small_disk)
    _write_until_refused(server)

    filler.unlink()

    wait_until(
        lambda: server.health("/readyz/write") == 200,
        "there is space, and /readyz/write does not know",
        ANSWER_SECONDS,
    )


def _write_until_refused(server: Server) -> None:
    """Use up what the write-ahead log still has room for."""
    for number in range(1000):
        vm = {"name": "web-0", "availability_set": "web", "tags": {"number": str(number) * 1000}}
        answer = server.operate("POST", "fleet", {"fleet": {"virtual_machine": [vm]}})
        if answer.status != 200:
            assert answer.status == 503, answer
            assert "the disk is full" in answer.json()["detail"]
            return
    pytest.fail("the disk is full, and everything can be written")
