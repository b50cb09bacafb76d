"""A real server with the executor file of a folder of contrib, and a fleet from its inventory."""

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.contrib.conftest import CONTRIB, Program
from tests.contrib.ssh import put_ssh
from tests.docs.blocks import ROOT, read_blocks
from tests.e2e.conftest import Server, ServerMaker, wait_until

(PAGE,) = read_blocks(ROOT / "docs" / "how-to/use-proxmox-or-openstack.md")
EVENT_TYPES = ("Freeze", "Reboot", "Redeploy", "Preempt", "Terminate")
SECONDS = 45.0


def serve(
    make_server: ServerMaker,
    folder: Path,
    product: str,
    inventory: Program,
    changes: Mapping[str, str],
) -> Server:
    """Start a server as the README of *product* says, with *changes* to its executor file."""
    put_ssh(folder)
    text = (CONTRIB / product / "executors.toml").read_text(encoding="utf-8")
    usual = {f"/usr/local/lib/forewarn-{product}": str(CONTRIB / product)}
    for old, new in {**usual, **changes}.items():
        assert old in text, old
        text = text.replace(old, new)
    (folder / "executors.toml").write_text(text, encoding="utf-8")
    (_, _, *flags), *_ = PAGE.commands
    given = (word.replace("/etc/forewarn", str(folder)) for word in flags)
    server = make_server(*given, "--speed", "10000")
    printed = inventory.run()
    assert printed.status == 0, printed.said
    (folder / "fleet.toml").write_text(printed.printed, encoding="utf-8")
    server.environment = {**server.environment, "PATH": f"{folder}:{os.defpath}"}
    server.start()
    return server


def follow_inventory(
    make_server: ServerMaker, folder: Path, product: str, changes: Mapping[str, str]
) -> Server:
    """Start a server that follows the source in the README of *product*, with *changes* to it."""
    readme = (CONTRIB / product / "README.md").read_text(encoding="utf-8")
    (text,) = re.findall(r"```toml\n(.*?)```", readme, re.DOTALL)
    usual = {f"/usr/local/lib/forewarn-{product}": str(CONTRIB / product), '"1m"': '"1s"'}
    for old, new in {**usual, 'timeout = "1s"': 'timeout = "30s"', **changes}.items():
        assert old in text, old
        text = text.replace(old, new)
    (folder / "discovery.toml").write_text(text, encoding="utf-8")
    (folder / "fleet.toml").write_text('[[virtual_machine]]\nname = "mine"\n', encoding="utf-8")
    server = make_server("--discovery-file", str(folder / "discovery.toml"))
    # The programs say /usr/bin/env python3.
    path = f"{Path(sys.executable).parent}:{os.defpath}"
    server.environment = {**server.environment, "PATH": path}
    server.start()
    return server


def where(server: Server, vm: str) -> str | None:
    """Return the host of *vm*, None if the fleet does not have it."""
    answer = server.operate("GET", f"virtual-machines/{vm}")
    return answer.json()["host"] if answer.status == 200 else None


def wait_for(server: Server, vm: str, host: str | None) -> None:
    """Wait until *vm* is on *host*, or not in the fleet."""
    wait_until(lambda: where(server, vm) == host, f"{vm} is not on {host}", SECONDS, pause=0.2)


def problem_of(server: Server) -> str:
    """Return what is wrong with the only source."""
    (source,) = server.operate("GET", "discovery").json()["sources"]
    return str(source["problem"])


def follow_the_page(server: Server, vm: str) -> None:
    """Run the commands of the page in docs/ after the one that starts the server, on *vm*."""
    for _, *words in PAGE.commands[1:]:
        here = [word.replace("scratch-0", vm) for word in words]
        done = server.try_command(*here, *(["--yes", "--wait"] if "create" in words else []))
        assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"


def carry_out_each_type(server: Server, vms: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Begin an event of each type, and return how each ended."""
    events = {
        event_type: server.create(event_type, vms[event_type], started=True)[0]["event_id"]
        for event_type in EVENT_TYPES
    }
    endings = {}
    for event_type, event_id in events.items():
        server.wait_for(event_id, "Completed", SECONDS)
        event = server.event(event_id)
        endings[event_type] = (event["outcome"], event["reason"])
    return endings


def maintain_host(server: Server, host: str) -> str:
    """Have *host* emptied and worked on, and return the outcome."""
    order = {"event_type": "Freeze", "hosts": [host]}
    begun = server.operate("POST", "maintenances", order)
    assert begun.status == 201, begun
    path = f"maintenances/{begun.json()['maintenance_id']}"
    wait_until(
        lambda: server.operate("GET", path).json()["outcome"] is not None,
        f"it has not ended: {server.operate('GET', path).json()}",
        SECONDS,
        pause=0.2,
    )
    return str(server.operate("GET", path).json()["outcome"])
