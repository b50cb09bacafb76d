#!/usr/bin/env python3
"""Maintain one node of a Proxmox VE cluster for forewarn, check it, and start its machines.

forewarn runs it for `run`, `verify` and `return` of a [[host_work]] table; OPERATION_TASK has the
task. The work: put the node into maintenance mode, wait until HA has emptied it, run the
operator's script on it, reboot it if asked to, and end maintenance mode. A failure leaves the node
in maintenance mode, so that nothing is placed there; a second run begins again.
"""

import argparse
import os
import re
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pve
from pve import ProxmoxError, Session, report

_NODE: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?")
_BOOT_ID: Final = "cat /proc/sys/kernel/random/boot_id"
_SSH_OPTIONS: Final = ("BatchMode=yes", "ConnectTimeout=10", "ServerAliveInterval=15")
_SETTLED: Final = frozenset({"stopped", "disabled", "ignored", "error"})
"""States of HA resources that stay on a node in maintenance mode."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node by *name*, reached as *login* by ssh."""

    session: Session
    name: str
    login: str

    def run(self, command: str, script: Path | None = None) -> str:
        """Run *command* on the node, with *script* on its standard input."""
        options = (f"-o{each}" for each in _SSH_OPTIONS)
        with (script or Path(os.devnull)).open("rb") as given:
            done = subprocess.run(
                ["ssh", *options, "--", f"{self.login}@{self.name}", command],  # noqa: S607
                stdin=given,
                capture_output=True,
                text=True,
                errors="replace",
                check=False,
            )
        if done.returncode != 0:
            said = [line for line in f"{done.stdout}\n{done.stderr}".splitlines() if line.strip()]
            why = said[-1] if said else f"exit code {done.returncode}"
            raise ProxmoxError(f'"{command}" failed on "{self.name}": {why}')
        return done.stdout.strip()

    def set_maintenance(self, verb: str) -> None:
        report(f"{verb} maintenance mode of {self.name}")
        self.run(f"ha-manager crm-command node-maintenance {verb} {self.name}")

    def is_in_maintenance(self) -> bool:
        return self.name in pve.list_nodes_in_maintenance(self.session)

    def list_services(self) -> list[str]:
        """Return the HA resources that are still to leave the node."""
        return [
            str(entry["sid"])
            for entry in self.session.get("/cluster/ha/status/current")
            if entry.get("type") == "service"
            and entry.get("node") == self.name
            and entry.get("state") not in _SETTLED
        ]


def work(node: Node, options: argparse.Namespace) -> str:
    """Empty the node, run the script, reboot, and open the node again."""
    session = node.session
    node.set_maintenance("enable")
    session.wait(node.list_services, lambda left: not left, f'HA to empty "{node.name}"')
    if options.reboot:
        refuse_to_surprise(node)
    if options.script:
        report(f"{options.script.name} on {node.name}")
        node.run("sh -s", options.script)
    if options.reboot:
        reboot(node)
    node.set_maintenance("disable")
    session.wait(
        node.is_in_maintenance, lambda is_so: not is_so, f'"{node.name}" to leave maintenance mode'
    )
    return f"{node.name} is done"


def refuse_to_surprise(node: Node) -> None:
    """Refuse to reboot a node under machines that were told of something milder."""
    guests = [guest for guest in pve.list_guests(node.session) if guest.node == node.name]
    running = [each.name for each in guests if pve.look_at(node.session, each).is_running]
    told = os.environ.get("EVENT_TYPE", "")
    if running and told != "Reboot":
        names = f"{running[0]} and {len(running) - 1} more" if running[1:] else running[0]
        raise ProxmoxError(
            f'{names} would go down with "{node.name}", but the event is "{told}": move them first'
        )


def reboot(node: Node) -> None:
    """Reboot the node, and return when it runs another boot."""
    before = node.run(_BOOT_ID)
    report(f"reboot of {node.name}")
    with suppress(ProxmoxError):  # the connection may break before the answer
        node.run("systemctl reboot")
    deadline = time.monotonic() + node.session.wait_seconds
    while boot_of(node) in {before, ""}:
        if time.monotonic() > deadline:
            limit = f"{node.session.wait_seconds:g} s"
            raise ProxmoxError(f'"{node.name}" has not rebooted within {limit}')
        time.sleep(node.session.pause_seconds)


def boot_of(node: Node) -> str:
    """Return the id of the current boot, or nothing while the node is away."""
    try:
        return node.run(_BOOT_ID)
    except ProxmoxError:
        return ""


def verify(node: Node, _: argparse.Namespace) -> str:
    """Look whether the cluster counts on the node again; change nothing."""
    entries = node.session.get("/cluster/resources", type="node")
    status = {str(entry["node"]): entry.get("status") for entry in entries}
    if status.get(node.name) != "online":
        raise ProxmoxError(f'"{node.name}" is {status.get(node.name, "unknown")}, not online')
    if node.is_in_maintenance():
        raise ProxmoxError(f'"{node.name}" is still in maintenance mode')
    return f"{node.name} is online"


def give_back(node: Node, _: argparse.Namespace) -> str:
    """Have the machine run, if it is still on the node."""
    session, name = node.session, os.environ.get("OPERATION_VM", "")
    guest = pve.find_guest(session, name)
    if guest.node != node.name:
        return f"{name} stays on {guest.node}\nhost={guest.node}"
    state = pve.look_at(session, guest)
    if state.is_paused:
        pve.resume(session, guest)
    elif not state.is_running:
        pve.start(session, guest)
    return f"{name} runs on {guest.node}"


TASKS: Final[Mapping[str, Callable[[Node, argparse.Namespace], str]]] = {
    "work": work,
    "verify": verify,
    "return": give_back,
}


def main() -> str:
    """Carry out the task, and return how it ended."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    pve.add_options(parser)
    parser.add_argument("--script", type=Path, help="shell script to run on the node")
    parser.add_argument("--reboot", action="store_true", help="reboot the node after the script")
    parser.add_argument("--login", default="root", help="ssh user; default: root")
    options = parser.parse_args()
    task, name = os.environ.get("OPERATION_TASK", ""), os.environ.get("OPERATION_HOST", "")
    if task not in TASKS:
        raise ProxmoxError(f'set OPERATION_TASK to one of {", ".join(TASKS)}, not "{task}"')
    if not _NODE.fullmatch(name):
        raise ProxmoxError(f'set OPERATION_HOST to the name of a node, not "{name}"')
    if options.script and not options.script.is_file():
        raise ProxmoxError(f'the script "{options.script}" does not exist')
    node = Node(session=pve.open_session(options), name=name, login=options.login)
    return TASKS[task](node, options)


if __name__ == "__main__":
    pve.run(main)
