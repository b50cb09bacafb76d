"""Commands find the server they were started beside, wherever it listens."""

import json
import stat
import subprocess
from pathlib import Path

from tests.e2e.conftest import FOREWARN, Server, ServerMaker, run_script
from tests.ports import free_port


def ask(server: Server, *arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command that is told nothing about the server but its folder."""
    return run_script(server.forks, [str(FOREWARN), *arguments], server.environment, folder)


def test_command_finds_the_server_beside_it_while_it_runs(start_server: ServerMaker) -> None:
    server = start_server()
    folder = server.database.parent
    left = folder / "control.url"

    found = ask(server, "vm", "list", folder=folder)
    shown = ask(server, "config", "show", "-o", "json", folder=folder)
    mode = stat.S_IMODE(left.stat().st_mode)

    assert found.returncode == 0, found.stderr
    assert "solo-0" in found.stdout
    (place,) = (
        (each["value"], each["place"])
        for each in json.loads(shown.stdout)["settings"]
        if each["name"] == "server"
    )
    assert place == (f"http://127.0.0.1:{server.control_port}", "control.url")
    assert mode == 0o600
    assert server.stop() == 0
    assert not left.exists()


def test_address_that_a_killed_server_has_left_is_not_believed(start_server: ServerMaker) -> None:
    server = start_server()
    folder = server.database.parent
    server.kill()
    (folder / "forewarn.toml").write_text(f'control = "127.0.0.1:{free_port()}"\n')
    expected = (folder / "forewarn.toml").read_text().split('"')[1]

    refused = ask(server, "vm", "list", folder=folder)

    assert (folder / "control.url").exists()
    assert refused.returncode == 6
    assert f"Cannot connect to http://{expected}" in refused.stderr


def test_token_that_is_not_known_is_reported_with_the_server_that_was_asked(
    start_server: ServerMaker,
) -> None:
    server = start_server()

    refused = ask(server, "vm", "list", "--token", "wrong", folder=server.database.parent)

    url = f"http://127.0.0.1:{server.control_port}"
    assert f"{url}: Unknown token." in refused.stderr
