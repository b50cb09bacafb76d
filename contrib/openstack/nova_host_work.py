#!/usr/bin/env python3
"""Maintain one compute host of an OpenStack cloud for forewarn, check it, and start its servers.

forewarn runs it for `run`, `verify` and `return` of a [[host_work]] table; OPERATION_TASK has the
task. The work: disable the compute service, so that Nova places nothing there, run the
operator's script on the host, reboot it if asked to, wait until the service is up, and enable it.
A failure leaves the service disabled; a second run begins again.
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
from typing import Any, Final

import nova
from keystone import OpenStackError
from nova import Session, report

_HOST: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]{0,252}")
_BOOT_ID: Final = "cat /proc/sys/kernel/random/boot_id"
_SSH_OPTIONS: Final = ("BatchMode=yes", "ConnectTimeout=10", "ServerAliveInterval=15")
_REASON: Final = "forewarn"
_OFF: Final = frozenset({"SHUTOFF", "SHELVED_OFFLOADED", "ERROR"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """The nova-compute of a host."""

    id: str
    is_up: bool
    is_enabled: bool
    reason: str

    @property
    def is_kept_disabled(self) -> bool:
        """Whether somebody else has disabled it, and is to enable it again."""
        return not self.is_enabled and not self.reason.startswith(_REASON)


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeHost:
    """A host by *name*, reached as *login* by ssh."""

    session: Session
    name: str
    login: str

    def run(self, command: str, script: Path | None = None) -> str:
        """Run *command* on the host, with *script* on its standard input."""
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
            raise OpenStackError(f'"{command}" failed on "{self.name}": {why}')
        return done.stdout.strip()

    def look(self) -> Service:
        """Return its compute service as it is now."""
        query = {"binary": "nova-compute", "host": self.name}
        found = [
            read_service(each) for each in self.session.get("/os-services", **query)["services"]
        ]
        if len(found) != 1:
            raise OpenStackError(
                f'Nova knows {len(found)} compute services of "{self.name}", not 1'
            )
        return found[0]

    def change(self, **fields: str) -> None:
        """Enable or disable the service."""
        report(f"compute service of {self.name}: {fields['status']}")
        self.session.change("PUT", f"/os-services/{self.look().id}", fields)


def read_service(found: Mapping[str, Any]) -> Service:
    return Service(
        id=str(found["id"]),
        is_up=found["state"] == "up",
        is_enabled=found["status"] == "enabled",
        reason=str(found.get("disabled_reason") or ""),
    )


def work(host: ComputeHost, options: argparse.Namespace) -> str:
    """Close the host, run the script, reboot, and open the host again."""
    before = host.look()
    if before.is_enabled:
        maintenance = os.environ.get("MAINTENANCE_ID", "")
        host.change(status="disabled", disabled_reason=f"{_REASON} {maintenance}".strip())
    if options.reboot:
        refuse_to_surprise(host)
    if options.script:
        report(f"{options.script.name} on {host.name}")
        host.run("sh -s", options.script)
    if options.reboot:
        reboot(host)
    host.session.wait(host.look, lambda service: service.is_up, f'"{host.name}" to be up')
    if before.is_kept_disabled:
        return f'{host.name} is done and stays disabled: "{before.reason}"'
    host.change(status="enabled")
    return f"{host.name} is done"


def refuse_to_surprise(host: ComputeHost) -> None:
    """Refuse to reboot a host under servers that were told of something milder."""
    found = nova.list_servers(host.session, all_tenants="1", host=host.name)
    servers = [nova.read_server(each) for each in found]
    running = [each.name for each in servers if each.status not in _OFF and each.host == host.name]
    told = os.environ.get("EVENT_TYPE", "")
    if running and told != "Reboot":
        names = f"{running[0]} and {len(running) - 1} more" if running[1:] else running[0]
        raise OpenStackError(
            f'{names} would go down with "{host.name}", but the event is "{told}": move them first'
        )


def reboot(host: ComputeHost) -> None:
    """Reboot the host, and return when it runs another boot."""
    before = host.run(_BOOT_ID)
    report(f"reboot of {host.name}")
    with suppress(OpenStackError):  # the connection may break before the answer
        host.run("systemctl reboot")
    deadline = time.monotonic() + host.session.wait_seconds
    while boot_of(host) in {before, ""}:
        if time.monotonic() > deadline:
            limit = f"{host.session.wait_seconds:g} s"
            raise OpenStackError(f'"{host.name}" has not rebooted within {limit}')
        time.sleep(host.session.pause_seconds)


def boot_of(host: ComputeHost) -> str:
    """Return the id of the current boot, or nothing while the host is away."""
    try:
        return host.run(_BOOT_ID)
    except OpenStackError:
        return ""


def verify(host: ComputeHost, _: argparse.Namespace) -> str:
    """Look whether Nova counts on the host again; change nothing."""
    service = host.look()
    if not service.is_up:
        raise OpenStackError(f'the compute service of "{host.name}" is down')
    if not (service.is_enabled or service.is_kept_disabled):
        raise OpenStackError(f'the compute service of "{host.name}" is still disabled')
    return f"{host.name} is up"


def give_back(host: ComputeHost, options: argparse.Namespace) -> str:
    """Have the server run, if it is still on the host."""
    session, name = host.session, os.environ.get("OPERATION_VM", "")
    server = nova.find_server(session, name, all_projects=options.all_projects)
    if server.host and server.host != host.name:
        return f"{name} stays on {server.host}\nhost={server.host}"
    if server.status == "PAUSED":
        nova.unpause(session, server)
    elif server.status == "SHUTOFF":
        nova.act(session, server, "os-start")
        nova.settle(session, server, "ACTIVE")
    else:
        nova.settle(session, server, "ACTIVE")
    return f"{name} runs on {host.name}"


TASKS: Final[Mapping[str, Callable[[ComputeHost, argparse.Namespace], str]]] = {
    "work": work,
    "verify": verify,
    "return": give_back,
}


def main() -> str:
    """Carry out the task, and return how it ended."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    nova.add_options(parser)
    parser.add_argument("--script", type=Path, help="shell script to run on the host")
    parser.add_argument("--reboot", action="store_true", help="reboot the host after the script")
    parser.add_argument("--login", default="root", help="ssh user; default: root")
    options = parser.parse_args()
    task, name = os.environ.get("OPERATION_TASK", ""), os.environ.get("OPERATION_HOST", "")
    if task not in TASKS:
        raise OpenStackError(f'set OPERATION_TASK to one of {", ".join(TASKS)}, not "{task}"')
    if not _HOST.fullmatch(name):
        raise OpenStackError(f'set OPERATION_HOST to the name of a host, not "{name}"')
    if options.script and not options.script.is_file():
        raise OpenStackError(f'the script "{options.script}" does not exist')
    host = ComputeHost(session=nova.open_session(options), name=name, login=options.login)
    return TASKS[task](host, options)


if __name__ == "__main__":
    nova.run(main)
