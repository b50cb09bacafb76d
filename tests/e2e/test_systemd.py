"""The units: systemd has no complaint, and the server tells it when it is ready."""

import re
import socket
import subprocess
from pathlib import Path

import pytest
from tests.e2e.conftest import START_SECONDS, ServerMaker
from tests.needs import find_program

from forewarn.host_worker.settings import STATE_DIRECTORY

UNITS = Path(__file__).parents[2] / "contrib/systemd"
UNIT = UNITS / "forewarn.service"
RELAY = UNITS / "forewarn-relay.service"
HOST_SETUP = UNITS / "forewarn-host-setup.service"
HOST_WORK = UNITS / "forewarn-host-work.service"
AGENT = UNITS / "forewarn-agent.service"
MOST_EXPOSED = {UNIT: 2.1, RELAY: 2.1, HOST_SETUP: 2.3, AGENT: 4.3, HOST_WORK: 8.8}
"""What `systemd-analyze security` may say; 10 is a unit without restrictions."""


def analyze(*arguments: str) -> str:
    done = subprocess.run(
        [find_program("systemd-analyze"), *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_every_unit_has_a_limit() -> None:
    assert sorted(MOST_EXPOSED) == sorted(UNITS.iterdir())


@pytest.mark.parametrize("unit", [UNIT, RELAY], ids=lambda unit: unit.stem)
def test_unit_with_listeners_allows_many_open_files(unit: Path) -> None:
    assert "\nLimitNOFILE=65536\n" in unit.read_text()


@pytest.mark.parametrize("shipped", MOST_EXPOSED, ids=lambda unit: unit.stem)
def test_systemd_has_no_complaint_about_the_unit(tmp_path: Path, shipped: Path) -> None:
    unit = tmp_path / shipped.name
    text = shipped.read_text()
    unit.write_text(re.sub(r"/usr/local/bin/forewarn\S*", "/bin/true", text))

    assert analyze("verify", "--man=no", str(unit)) == ""
    report = analyze("security", "--offline=true", "--no-pager", str(unit))
    exposure = re.search(r"Overall exposure level .*: ([\d.]+)", report)
    assert exposure, report
    assert float(exposure[1]) <= MOST_EXPOSED[shipped], report


def test_settings_file_decides_about_everything_else() -> None:
    """A flag of the unit would win over the file, such as over a PostgreSQL database there."""
    (command,) = re.findall(r"^ExecStart=\S+ (.*)$", UNIT.read_text(), re.MULTILINE)

    assert command == "serve --config /etc/forewarn/forewarn.toml"
    # Where the default database, forewarn.db, is made.
    assert "\nWorkingDirectory=/var/lib/forewarn\n" in UNIT.read_text()
    (command,) = re.findall(r"^ExecStart=\S+ (.*)$", RELAY.read_text(), re.MULTILINE)
    assert command == "relay --config /etc/forewarn/relay.toml"
    # Where the default state directory is.
    assert "\nWorkingDirectory=/var/lib/forewarn-relay\n" in RELAY.read_text()
    (command,) = re.findall(r"^ExecStart=\S+ (.*)$", HOST_WORK.read_text(), re.MULTILINE)
    assert command == "host work --config /etc/forewarn/host-work.toml"
    assert f"\nStateDirectory={STATE_DIRECTORY.name}\n" in HOST_WORK.read_text()
    # Programs outlive the process that started them.
    assert "\nKillMode=process\n" in HOST_WORK.read_text()


def test_systemd_is_told_when_everybody_is_answered(
    make_server: ServerMaker, tmp_path: Path
) -> None:
    server = make_server()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.settimeout(START_SECONDS)
        server.environment = {**server.environment, "NOTIFY_SOCKET": str(tmp_path / "notify")}
        server.launch()

        assert systemd.recv(1024) == b"READY=1"
    assert server.health("/readyz") == 200
    assert server.poll("web-0").status == 200
    assert server.stop() == 0, server.said()
