"""The file of a host that does its own work."""

import os
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from tests.executors.host_work import WORK
from tests.needs import need_root

from forewarn.domain.host_work import HostTaskKind
from forewarn.environment import SettingsError
from forewarn.executors.command import Command
from forewarn.executors.task_input import host_task_input
from forewarn.files.tables import TablesError
from forewarn.host_worker.settings import STATE_DIRECTORY, read_host_work_settings

SEARCH = "/usr/bin:/bin"
SERVER = 'server = "https://10.0.0.5:8170"\ntoken_file = "relay.token"\n'
RUN = 'run = ["./patch", "all"]\n'

Write = Callable[[str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    program = tmp_path / "patch"
    program.write_text("#!/bin/sh\n", encoding="utf-8")
    program.chmod(0o755)

    def write_file(text: str) -> Path:
        path = tmp_path / "host-work.toml"
        path.write_text(text, encoding="utf-8")
        path.chmod(0o644)
        return path

    return write_file


def test_least_that_a_file_can_have(write: Write, tmp_path: Path) -> None:
    settings = read_host_work_settings(write(SERVER + RUN), SEARCH)

    assert settings.server == "https://10.0.0.5:8170"
    assert settings.token_file == tmp_path / "relay.token"
    assert settings.state_dir == STATE_DIRECTORY
    assert settings.commands == {
        HostTaskKind.WORK: Command(run=(f"{tmp_path}/./patch", "all"), timeout=timedelta(hours=1))
    } or settings.commands == {
        HostTaskKind.WORK: Command(run=(f"{tmp_path}/patch", "all"), timeout=timedelta(hours=1))
    }
    assert not settings.restarts_host


def test_all_that_a_file_can_have(write: Write, tmp_path: Path) -> None:
    text = f"""{SERVER}{RUN}
ca_file = "ca.pem"
insecure_control = false
state_dir = "state"
timeout = "2h"
restarts_host = true
verify = ["true"]
verify_timeout = "30s"
return = ["true"]
log_format = "json"
log_level = "warning"
"""

    settings = read_host_work_settings(write(text), SEARCH)

    assert settings.ca_file == tmp_path / "ca.pem"
    assert settings.state_dir == tmp_path / "state"
    assert settings.restarts_host
    timeouts = {kind.value: command.timeout for kind, command in settings.commands.items()}
    hours, half = timedelta(hours=2), timedelta(seconds=30)
    assert timeouts == {"work": hours, "verify": half, "return": hours}
    found = settings.find(host_task_input(replace(WORK, kind=HostTaskKind.VERIFY), epoch=1))
    assert found is settings.commands[HostTaskKind.VERIFY]


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        (SERVER, None, "run: "),
        (SERVER + "run = []\n", 3, "run: it is empty."),
        (SERVER + 'run = ["./none"]\n', 3, "run: program not found or not executable: './none'"),
        (
            SERVER + RUN + 'verify = ["none"]\n',
            4,
            "verify: program not found or not executable: 'none'",
        ),
        (SERVER + RUN + 'timeout = "soon"\n', 4, "timeout: "),
        (SERVER + RUN + "reboot = true\n", 4, "reboot: "),
    ],
)
def test_mistakes_are_refused_with_their_line(
    write: Write, text: str, line: int | None, problem: str
) -> None:
    path = write(text)

    with pytest.raises(TablesError) as refusal:
        read_host_work_settings(path, SEARCH)

    ((found, sentence),) = refusal.value.mistakes
    assert found == line
    assert sentence.startswith(problem)


def test_token_is_not_sent_where_others_can_read_it(write: Write) -> None:
    path = write(SERVER.replace("https", "http") + RUN)

    with pytest.raises(SettingsError, match="Refused to send the token"):
        read_host_work_settings(path, SEARCH)
    write(SERVER.replace("https", "http") + RUN + "insecure_control = true\n")
    read_host_work_settings(path, SEARCH)


def test_file_that_others_can_change_is_refused(write: Write) -> None:
    path = write(SERVER + RUN)
    path.chmod(0o666)

    with pytest.raises(TablesError, match="Other users can change"):
        read_host_work_settings(path, SEARCH)


def test_program_that_others_can_change_is_refused(write: Write, tmp_path: Path) -> None:
    path = write(SERVER + RUN)
    (tmp_path / "patch").chmod(0o777)

    with pytest.raises(TablesError, match="run: other users can change the program"):
        read_host_work_settings(path, SEARCH)


def test_program_of_another_user_is_refused(write: Write, tmp_path: Path) -> None:
    need_root("give a file away")
    path = write(SERVER + RUN)
    os.chown(tmp_path / "patch", 12345, 12345)

    with pytest.raises(TablesError, match="run: other users can change the program"):
        read_host_work_settings(path, SEARCH)
