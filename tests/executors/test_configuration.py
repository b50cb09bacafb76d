"""The file of executors, and what is wrong with it."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from forewarn.executors.command import Command
from forewarn.executors.configuration import ExecutorFileError, read_commands, read_targets
from forewarn.executors.exchange import Target
from forewarn.executors.orders import Selection
from forewarn.protocol.vocabulary import EventType

SEARCH = "/usr/bin:/bin"
RUN = '[[command]]\nrun = ["true"]\n'
HOOK = '[[webhook]]\nurl = "https://hush.example/T0KEN"\n'

Write = Callable[[str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Return a function that writes a file of executors."""

    def write_file(text: str) -> Path:
        path = tmp_path / "executors.toml"
        path.write_text(text, encoding="utf-8")
        return path

    return write_file


def test_file_says_what_to_run_for_what_and_where(write: Write, tmp_path: Path) -> None:
    (tmp_path / "reboot").write_text("#!/bin/sh\n", encoding="utf-8")
    (tmp_path / "reboot").chmod(0o755)
    text = """
[[command]]
event_types = ["Reboot", "Redeploy"]
hosts = ["kvm-*"]
run = ["./reboot", "--gently"]
timeout = "30m"

[[command]]
run = ["sh", "-c", "exit 0"]
"""

    first, second = read_commands(write(text), SEARCH)

    assert first == Command(
        run=(str(tmp_path / "reboot"), "--gently"),
        selection=Selection(event_types=(EventType.REBOOT, EventType.REDEPLOY), hosts=("kvm-*",)),
        timeout=timedelta(minutes=30),
    )
    assert second.run[0] in {"/usr/bin/sh", "/bin/sh"}
    assert second.run[1:] == ("-c", "exit 0")
    assert second.timeout == timedelta(hours=1)


def test_file_says_whom_to_post_to(write: Write, tmp_path: Path) -> None:
    (tmp_path / "key").write_text("hush\n", encoding="utf-8")
    text = f'{HOOK}secret_file = "key"\nheaders = {{ X-Token = "1" }}\nrequest_timeout = 2\n'

    (target,) = read_targets(write(text))

    assert target == Target(
        url="https://hush.example/T0KEN",
        headers={"X-Token": "1"},
        secret="hush",  # noqa: S106
        request_timeout=2,
    )
    assert "hush" not in repr(target)


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        ("a = = 1\n", 1, "is not TOML"),
        ("\npigeon = 1\n", 2, "pigeon: there is no such key."),
        ('[command]\nrun = ["true"]\n', 1, "command: write it as a list."),
        ("[[command]]\n", 1, "run of command 1: it is missing."),
        ("[[command]]\nrun = []\n", 2, "run of command 1: write a program and its arguments."),
        (RUN + '[[command]]\nrun = "true"\n', 4, "run of command 2: write it as a list."),
        (RUN.replace("true", "no-such"), 2, "run of command 1: there is no program 'no-such'"),
        (RUN.replace("true", "./no-such"), 2, "run of command 1: there is no program './no-such"),
        (RUN.replace('"true"', '"true", "\\u0000"'), 2, "run of command 1: no word of a command"),
        (RUN + 'timeout = "soon"\n', 3, "timeout of command 1: 'soon' is no duration; write 30s"),
        (RUN + 'timeout = "0s"\n', 3, "timeout of command 1: nothing can be done in no time."),
        (RUN + 'event_types = ["Nap"]\n', 3, "event_types of command 1: input should be 'Freeze'"),
        (HOOK.replace("https", "ftp"), 2, "url of webhook 1: write a URL that begins"),
        (HOOK.replace("://", "://u:T0KEN/P@"), 2, "url of webhook 1: there is no way to such a"),
        (HOOK + 'headers = { "a b" = "1" }\n', 3, "headers of webhook 1: 'a b' cannot be a"),
        (HOOK + 'secret = "a"\nsecret_file = "b"\n', 1, "webhook 1: it has a secret and a"),
        (HOOK + "request_timeout = 61\n", 3, "request_timeout of webhook 1: input should be"),
        (HOOK + "retries = 1\n", 3, "retries of webhook 1: there is no such key."),
    ],
)
def test_what_is_wrong_is_refused_with_its_line(
    write: Write, text: str, line: int, problem: str
) -> None:
    path = write(text)

    with pytest.raises(ExecutorFileError) as refused:
        read_commands(path, SEARCH)

    said = str(refused.value)
    assert said.startswith((f"{path}:{line}: {problem}", f"{path}:{line} {problem}"))
    assert said.endswith(".")
    assert "hush.example" not in said


@pytest.mark.parametrize(
    ("secret", "problem"),
    [(None, "the secret cannot be read"), (" \n", "there is no secret in the file.")],
)
def test_secret_that_is_not_there_is_refused(
    write: Write, tmp_path: Path, secret: str | None, problem: str
) -> None:
    if secret is not None:
        (tmp_path / "key").write_text(secret, encoding="utf-8")
    path = write(HOOK + 'secret_file = "key"\n')

    with pytest.raises(ExecutorFileError) as refused:
        read_targets(path)

    assert str(refused.value).startswith(f"{path}:3: secret_file of webhook 1: {problem}")


def test_file_of_the_other_kind_is_refused(write: Write) -> None:
    with pytest.raises(ExecutorFileError, match=r"has no \[\[command\]\]\."):
        read_commands(write(HOOK), SEARCH)
    with pytest.raises(ExecutorFileError, match=r"has no \[\[webhook\]\]\."):
        read_targets(write(RUN))


def test_file_has_to_be_given_and_there(tmp_path: Path) -> None:
    with pytest.raises(ExecutorFileError, match="give the setting executor_file"):
        read_targets(None)
    with pytest.raises(ExecutorFileError, match="cannot be read: "):
        read_targets(tmp_path / "nothing")
