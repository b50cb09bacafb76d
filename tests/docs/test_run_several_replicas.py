"""What "Run several replicas on PostgreSQL" says is taken by the programs it is for."""

import csv
import os
import re
import shutil
import socket
import subprocess
import tomllib
from pathlib import Path

import pytest
from tests.cli.test_help import helped
from tests.e2e.conftest import START_SECONDS, Server, wait_until
from tests.e2e.test_postgres_access import make_certificate
from tests.e2e.test_tls import _ask
from tests.ports import free_port

from forewarn.settings import make_settings

PAGE = (Path(__file__).parents[2] / "docs/how-to/run-several-replicas.md").read_text("utf-8")
TABLES = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
(BALANCER,) = re.findall(r"```text\n(defaults\n.*?)```", PAGE, re.DOTALL)
COMMANDS = sorted({*re.findall(r"^ *\$ forewarn (.*)$", PAGE, re.MULTILINE)})
HAPROXY = shutil.which("haproxy", path="/usr/sbin:/usr/local/sbin:/usr/bin")


def test_settings_are_those_of_a_server() -> None:
    (text,) = TABLES

    settings = make_settings(tomllib.loads(text))

    assert settings.is_shared
    assert settings.control_host == ("forewarn.example",)


@pytest.mark.parametrize("line", COMMANDS)
def test_command_exists(line: str) -> None:
    words = [word for word in line.split() if not word.startswith(("-", "/", "postgresql:"))]
    verb = words[:2] if words[0] in {"db", "token"} else words[:1]

    options = re.findall(r"--[a-z-]+", line)
    assert all(option in helped(*verb) for option in options)


@pytest.mark.skipif(HAPROXY is None, reason="haproxy is not installed")
def test_balancer_finds_the_replica_that_answers(tmp_path: Path) -> None:
    assert HAPROXY is not None
    make_certificate(tmp_path, "control", "test only")
    pair = (str(tmp_path / "control.pem"), str(tmp_path / "control.key"))
    (tmp_path / "fleet.toml").write_text('[[virtual_machine]]\nname = "web-0"\n')
    server = Server(
        database=tmp_path / "forewarn.db",
        fleet=tmp_path / "fleet.toml",
        flags=("--control-certificate", pair[0], "--control-key", pair[1]),
        environment={"PATH": os.defpath, "HOME": str(tmp_path)},
        log=tmp_path / "server.log",
    )
    port = free_port()
    file = tmp_path / "haproxy.cfg"
    statistics = tmp_path / "statistics"
    text = BALANCER.replace("bind 10.0.0.10:8170", f"bind 127.0.0.1:{port}")
    for place, there in (("11", free_port()), ("12", server.control_port), ("13", free_port())):
        text = text.replace(f"10.0.0.{place}:8170", f"127.0.0.1:{there}")
    file.write_text(f"global\n    stats socket {statistics}\n{text}")
    subprocess.run([HAPROXY, "-c", "-f", file], check=True, capture_output=True, timeout=30)

    server.launch()
    with subprocess.Popen([HAPROXY, "-db", "-f", file], stderr=subprocess.DEVNULL) as balancer:
        try:
            shared = {
                "FOREWARN_SERVER": f"https://127.0.0.1:{port}",
                "FOREWARN_CA_FILE": pair[0],
            }
            wait_until(
                lambda: checks(statistics) == {"a": "L4CON", "b": "L7OK", "c": "L4CON"},
                f"the balancer does not find the replica: {server.said()}",
                START_SECONDS,
                pause=0.2,
            )
            listed = _ask(server, "vm", "list", **shared)
        finally:
            balancer.kill()
            server.kill()
    assert "web-0" in listed.stdout, listed.stderr


def checks(statistics: Path) -> dict[str, str]:
    """Return what the balancer has found at each replica."""
    with socket.socket(socket.AF_UNIX) as client:
        try:
            client.connect(str(statistics))
        except OSError:
            return {}
        client.sendall(b"show stat\n")
        text = b"".join(iter(lambda: client.recv(65536), b"")).decode()
    rows = csv.DictReader(text.removeprefix("# ").splitlines())
    return {row["svname"]: row["check_status"] for row in rows if row["svname"] in {*"abc"}}
