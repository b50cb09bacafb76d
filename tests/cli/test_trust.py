"""What commands follow, and where they send tokens: nowhere that others have chosen."""

import fcntl
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.needs import need_root
from typer.testing import CliRunner, Result

from forewarn.cli.app import app
from forewarn.cli.settings import load_cli_settings
from forewarn.private_files import UnsafeFileError, create_private, read_secret, write_secret
from forewarn.settings import load_settings

Run = Callable[..., Result]
SECRET = "fw_a-secret-of-this-machine"  # noqa: S105
NOBODY = 65534


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def give_away(path: Path) -> None:
    need_root("give a file away")
    os.chown(path, NOBODY, NOBODY, follow_symlinks=False)


@contextmanager
def left_address(path: Path, url: str) -> Iterator[None]:
    """Leave *url* as a running server does."""
    path.write_text(f"{url}\n")
    with path.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def test_settings_file_of_another_user_is_not_followed_and_said(folder: Path) -> None:
    (folder / "forewarn.toml").write_text('control = "127.0.0.1:9"\n')
    give_away(folder / "forewarn.toml")

    shown = CliRunner().invoke(app, ["config", "show"])

    assert load_settings({}).control == "127.0.0.1:8170"
    assert load_cli_settings().server == "http://127.0.0.1:8170"
    assert "Ignored forewarn.toml in this directory: another user owns it" in shown.stderr
    assert ":9" not in shown.stdout
    named = load_settings({}, folder / "forewarn.toml")
    assert named.control == "127.0.0.1:9", "a file that was named is followed"


def test_settings_file_that_everybody_can_write_is_not_followed_and_said(folder: Path) -> None:
    (folder / "forewarn.toml").write_text('control = "127.0.0.1:9"\n')
    (folder / "forewarn.toml").chmod(0o666)

    shown = CliRunner().invoke(app, ["config", "show"])

    assert load_settings({}).control == load_cli_settings().server[7:] == "127.0.0.1:8170"
    assert "another user owns it or can write it" in shown.stderr


def test_directory_that_cannot_be_entered_has_no_settings(folder: Path) -> None:
    """As when an administrator runs a command for another user from a home of their own."""
    give_away(folder)
    folder.chmod(0o700)
    look = (
        "import os; "
        "from forewarn.environment import has_foreign_settings_file, read_settings_file; "
        "os.setgid(65533); os.setuid(65533); "
        "print(has_foreign_settings_file(), read_settings_file(None))"
    )

    ended = subprocess.run(
        [sys.executable, "-c", look],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    assert (ended.stdout, ended.stderr) == ("False {}\n", "")


def test_link_of_another_user_to_settings_is_not_followed(folder: Path) -> None:
    (folder / "mine.toml").write_text('control = "127.0.0.1:9"\n')
    (folder / "forewarn.toml").symlink_to(folder / "mine.toml")
    followed = load_settings({}).control
    give_away(folder / "forewarn.toml")

    assert (followed, load_settings({}).control) == ("127.0.0.1:9", "127.0.0.1:8170")


def test_address_that_another_user_left_in_the_working_directory_is_not_followed(
    folder: Path,
) -> None:
    with left_address(folder / "control.url", "http://127.0.0.1:9"):
        followed = load_cli_settings().server
        give_away(folder / "control.url")

        assert (followed, load_cli_settings().server) == (
            "http://127.0.0.1:9",
            "http://127.0.0.1:8170",
        )


def test_address_of_the_servers_user_is_followed_in_a_directory_that_was_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = folder / "state"
    state.mkdir()
    monkeypatch.setenv("FOREWARN_STATE_DIR", str(state))
    with left_address(state / "control.url", "http://127.0.0.1:9"):
        give_away(state)
        give_away(state / "control.url")

        assert load_cli_settings().server == "http://127.0.0.1:9"


@pytest.mark.parametrize(
    ("server", "is_sent"),
    [
        ("http://127.0.0.1:9", True),
        ("127.9.9.9:9", True),
        ("http://localhost:9", True),
        ("http://[::1]:9", True),
        ("https://10.0.0.5:8170", True),
        ("https://10.0.0.5:8171", False),
        ("https://127.0.0.1.example.com", False),
        ("https://example.com", False),
        ("http://[::1", False),
    ],
)
def test_admin_token_goes_to_loopback_and_to_the_server_that_made_it(
    folder: Path, server: str, *, is_sent: bool
) -> None:
    write_secret(folder / "admin.token", SECRET)

    with left_address(folder / "control.url", "https://10.0.0.5:8170"):
        assert load_cli_settings().find_token(server) == (SECRET if is_sent else None)


@pytest.fixture
def beyond_loopback(run: Run, server: str) -> str:
    """Return an address of the server that is not a loopback address, though it leads there."""
    assert run("vm", "list").exit_code == 0
    return f"http://0.0.0.0:{server.rpartition(':')[2]}"


def test_token_is_not_sent_over_plain_http_beyond_loopback(run: Run, beyond_loopback: str) -> None:
    refused = run("vm", "list", "--server", beyond_loopback)

    assert refused.exit_code == 2
    assert f"Refused to send the token to {beyond_loopback} over plain HTTP" in refused.stderr
    assert "FOREWARN_INSECURE_CONTROL=true" in refused.stderr


@pytest.mark.parametrize("url", [" http://10.0.0.5", "http+x://10.0.0.5", "\thttp://10.0.0.5"])
def test_token_is_sent_only_where_it_is_known_to_be_encrypted(run: Run, url: str) -> None:
    refused = run("vm", "list", "--server", url)

    assert refused.exit_code == 2
    assert "over plain HTTP, which others can read" in refused.stderr


def test_token_is_sent_over_plain_http_if_somebody_insists(
    run: Run, beyond_loopback: str, folder: Path
) -> None:
    by_variable = run("vm", "list", "--server", beyond_loopback, FOREWARN_INSECURE_CONTROL="true")
    (folder / "forewarn.toml").write_text("insecure_control = true\n")
    by_file = run("vm", "list", "--server", beyond_loopback)

    # It is the server that refuses, because that is not its name.
    for answered in (by_variable, by_file):
        assert (answered.exit_code, "is not a known name of this server" in answered.stderr) == (
            4,
            True,
        )


def test_token_does_not_follow_a_redirect(run: Run) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as target,
        socket.create_server(("127.0.0.1", 0)) as sender,
    ):
        elsewhere = f"http://127.0.0.1:{target.getsockname()[1]}"
        sender.settimeout(60)
        answer = f"HTTP/1.1 307 Temporary Redirect\r\nLocation: {elsewhere}/\r\n".encode()

        def redirect() -> None:
            peer, _ = sender.accept()
            with peer:
                peer.recv(65536)
                peer.sendall(answer + b"Content-Length: 0\r\nConnection: close\r\n\r\n")

        thread = threading.Thread(target=redirect)
        thread.start()
        refused = run("vm", "list", "--server", f"http://127.0.0.1:{sender.getsockname()[1]}")
        thread.join()

        assert "is not a forewarn server: it answered 307" in refused.stderr
        assert received(target) == b""


@pytest.mark.parametrize("insists", ["", "true"])
def test_completion_sends_no_token_over_plain_http(
    folder: Path, monkeypatch: pytest.MonkeyPatch, insists: str
) -> None:
    monkeypatch.setenv("FOREWARN_TOKEN", SECRET)
    monkeypatch.setenv("FOREWARN_INSECURE_CONTROL", insists or "false")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = f"http://0.0.0.0:{listener.getsockname()[1]}"
        line = f"forewarn vm show --server {server} web"
        words = {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split()) - 1)}

        done = CliRunner().invoke(
            app, [], prog_name="forewarn", env={"_FOREWARN_COMPLETE": "complete_bash", **words}
        )

        assert (done.stdout.strip(), done.stderr) == ("", "")
        assert (SECRET.encode() in received(listener)) == bool(insists)
    assert list(folder.iterdir()) == []


def received(listener: socket.socket) -> bytes:
    """Return what somebody has sent who did not wait for an answer; nothing if nobody came."""
    listener.setblocking(False)
    try:
        peer, _ = listener.accept()
    except BlockingIOError:
        return b""
    with peer:
        return peer.recv(65536)


def test_secret_is_written_for_its_owner_and_read_again(folder: Path) -> None:
    write_secret(folder / "admin.token", SECRET)

    assert read_secret(folder / "admin.token") == SECRET
    assert (folder / "admin.token").stat().st_mode & 0o777 == 0o600
    assert [path.name for path in folder.iterdir()] == ["admin.token"]


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660])
def test_secret_that_others_can_access_is_refused(folder: Path, mode: int) -> None:
    write_secret(folder / "admin.token", SECRET)
    (folder / "admin.token").chmod(mode)

    with pytest.raises(UnsafeFileError, match="run: chmod 600"):
        read_secret(folder / "admin.token")


@pytest.mark.parametrize(
    "content", ["short", "", "é" * 30, "x" * 5000, f"token:  {SECRET}\nrole:   relay\n"]
)
def test_secret_is_one_line_of_a_length(folder: Path, content: str) -> None:
    with create_private(folder / "admin.token") as file:
        file.write(content.encode())

    with pytest.raises(UnsafeFileError, match="20 to 1024 ASCII characters"):
        read_secret(folder / "admin.token")


def test_secret_of_another_user_is_refused(folder: Path) -> None:
    write_secret(folder / "admin.token", SECRET)
    give_away(folder / "admin.token")

    with pytest.raises(UnsafeFileError, match="belongs to another user"):
        read_secret(folder / "admin.token")


def test_directorys_owner_cannot_have_root_read_another_secret(folder: Path) -> None:
    elsewhere = folder / "elsewhere"
    state = folder / "state"
    for each in (elsewhere, state):
        each.mkdir()
    write_secret(elsewhere / "key", SECRET)
    (state / "admin.token").symlink_to(elsewhere / "key")
    assert read_secret(state / "admin.token") == SECRET, "a link of one's own is followed"
    give_away(state)
    give_away(state / "admin.token")

    with pytest.raises(UnsafeFileError, match="belongs to another user"):
        read_secret(state / "admin.token")
    give_away(elsewhere / "key")
    assert read_secret(state / "admin.token") == SECRET, "that of the server's user is, too"


def test_secret_is_not_a_directory(folder: Path) -> None:
    (folder / "admin.token").mkdir()

    with pytest.raises(IsADirectoryError):
        read_secret(folder / "admin.token")
    os.mkfifo(folder / "pipe", 0o600)
    with pytest.raises(UnsafeFileError, match="not a regular file"):
        read_secret(folder / "pipe")


def test_private_file_is_not_created_through_a_link_nor_over_a_file(folder: Path) -> None:
    (folder / "link").symlink_to(folder / "elsewhere")
    (folder / "file").touch()

    for name in ("link", "file"):
        with pytest.raises(FileExistsError):
            create_private(folder / name)
    assert not (folder / "elsewhere").exists()


def test_token_that_others_can_read_is_not_sent_and_said(run: Run, folder: Path) -> None:
    write_secret(folder / "admin.token", "open-sesame-for-tests")
    (folder / "admin.token").chmod(0o644)

    refused = run("vm", "list", FOREWARN_TOKEN=None)

    assert refused.exit_code == 1
    assert "Other users can access admin.token; run: chmod 600 admin.token" in refused.stderr
