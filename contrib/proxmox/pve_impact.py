#!/usr/bin/env python3
"""Carry out one impact of forewarn on one virtual machine of a Proxmox VE cluster.

forewarn runs it for a [[command]] table and says what to do in EVENT_TYPE, EVENT_VM, EVENT_HOST
and EVENT_DURATION. Each deed looks at the machine first, so that a second run by hand does only
what is left to do.
"""

import argparse
import os
import signal
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Final

import pve
from pve import Guest, GuestState, ProxmoxError, Session, report

_GIB: Final = 1024**3
_DONE: Final = b"."
_LOOKS: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Impact:
    """What is to be done to *guest*, which forewarn believes to be on *host*."""

    session: Session
    guest: Guest
    host: str
    freeze_seconds: float
    grace_seconds: int
    moves_live: bool
    targets: tuple[str, ...]

    def look(self) -> GuestState:
        return pve.look_at(self.session, self.guest)

    def order(self, verb: str, **fields: str | int) -> None:
        """Have Proxmox VE do *verb*, a task under status/."""
        report(f"{verb} of {self.guest.name} on {self.guest.node}")
        self.session.run_task(f"{self.guest.path}/status/{verb}", **fields)

    def wait_for(self, is_so: Callable[[GuestState], bool], verb: str) -> None:
        pve.wait_for(self.session, self.guest, is_so, verb)

    @property
    def has_moved(self) -> bool:
        """Whether the guest is no longer where it was when the event was announced."""
        return bool(self.host) and self.guest.node.casefold() != self.host.casefold()


def freeze(impact: Impact) -> str:
    """Pause the guest for the announced time, or move it live."""
    state, name = impact.look(), impact.guest.name
    if not state.is_running:
        return f"{name} is stopped: nothing to freeze"
    if impact.moves_live:
        return move_live(impact)
    if state.is_paused:
        # An earlier run was killed together with its guard.
        pve.resume(impact.session, impact.guest)
        return f"{name} was paused already and runs again"
    with guard(lambda: resume_if_paused(impact.session, impact.guest), impact.session):
        impact.order("suspend")
        report(f"{name} is paused for {impact.freeze_seconds:g} s")
        time.sleep(impact.freeze_seconds)
        resume_if_paused(impact.session, impact.guest)
    return f"{name} was paused for {impact.freeze_seconds:g} s and runs again"


def reboot(impact: Impact) -> str:
    """Reboot the guest in order, or reset it after the grace time."""
    before, name = impact.look(), impact.guest.name
    if not before.is_running:
        return f"{name} is stopped: nothing to reboot"
    if before.is_paused:
        # A paused guest would shut down only when somebody resumes it.
        pve.resume(impact.session, impact.guest)
    try:
        impact.order("reboot", timeout=impact.grace_seconds)
    except pve.TaskFailedError as error:
        report(f"{error}")
        impact.order("reset")
        impact.wait_for(lambda state: state.is_running, "run after the reset")
        return f"{name} did not shut down within {impact.grace_seconds} s and was reset"
    # The task ends with the shutdown; the node starts the guest afterwards, as another process.
    impact.wait_for(
        lambda state: state.is_running and state.process != before.process, "start again"
    )
    return f"{name} was rebooted"


def redeploy(impact: Impact) -> str:
    """Stop the guest, move it to another node and start it there."""
    if not impact.has_moved:
        target = choose_target(impact)
        stop(impact)
        impact = move(impact, target)
    if not impact.look().is_running:
        report(f"start of {impact.guest.name} on {impact.guest.node}")
        pve.start(impact.session, impact.guest)
    return f"{impact.guest.name} runs on {impact.guest.node}"


def end(impact: Impact) -> str:
    """Shut the guest down for good; stop it after the grace time."""
    stop(impact)
    return f"{impact.guest.name} is stopped"


DEEDS: Final[Mapping[str, Callable[[Impact], str]]] = {
    "Freeze": freeze,
    "Reboot": reboot,
    "Redeploy": redeploy,
    "Preempt": end,
    "Terminate": end,
}


def stop(impact: Impact) -> None:
    """Have the guest stopped, by force after the grace time."""
    if impact.look().is_running:
        impact.order("shutdown", timeout=impact.grace_seconds, forceStop=1)
        impact.wait_for(lambda state: not state.is_running, "stop")


def move_live(impact: Impact) -> str:
    """Migrate the running guest, unless it has left its host already."""
    if not impact.has_moved:
        impact = move(impact, choose_target(impact), online=1)
        impact.wait_for(lambda state: state.is_running, "run after the migration")
    return f"{impact.guest.name} runs on {impact.guest.node}"


def move(impact: Impact, target: str, **fields: int) -> Impact:
    """Migrate the guest with its local disks, and return the impact on its new node."""
    session, guest = impact.session, impact.guest
    report(f"migrate {guest.name} from {guest.node} to {target}")
    if session.get(f"{guest.path}/migrate")["local_disks"]:
        fields = {**fields, "with-local-disks": 1}
    session.run_task(f"{guest.path}/migrate", target=target, **fields)
    # The task of a guest that HA manages only asks the HA manager.
    moved = session.wait(
        lambda: pve.find_guest(session, guest.name),
        lambda found: found.node == target,
        f'"{guest.name}" to arrive on "{target}"',
    )
    return replace(impact, guest=moved)


def choose_target(impact: Impact) -> str:
    """Return the node with the most free memory that can take the guest."""
    session, guest = impact.session, impact.guest
    allowed = set(session.get(f"{guest.path}/migrate").get("allowed_nodes", ()))
    allowed -= pve.list_nodes_in_maintenance(session)
    if impact.targets:
        allowed &= set(impact.targets)
    free = {
        str(node["node"]): int(node["maxmem"]) - int(node["mem"])
        for node in session.get("/cluster/resources", type="node")
        if node.get("status") == "online" and node["node"] in allowed
    }
    fitting = {node: memory for node, memory in free.items() if memory >= guest.memory}
    if not fitting:
        need = f"{guest.memory / _GIB:.1f} GiB"
        raise ProxmoxError(f'no other node can take "{guest.name}" ({need})')
    return max(fitting, key=lambda node: fitting[node])


@contextmanager
def guard(undo: Callable[[], bool], session: Session) -> Generator[None]:
    """Have *undo* done by another process if this one is killed, or fails."""
    watched, held = os.pipe()
    if os.fork() == 0:
        os.close(held)
        _stand_guard(watched, undo, session)
    os.close(watched)
    try:
        yield
        os.write(held, _DONE)
    finally:
        os.close(held)


def _stand_guard(watched: int, undo: Callable[[], bool], session: Session) -> None:
    """Wait until the parent is gone; unless it said that all is well, undo. Never return."""
    with suppress(BaseException):
        os.setsid()  # what stops the parent is not to stop its guard
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nowhere, stream)
        if os.read(watched, 1) != _DONE:
            _undo(undo, session)
    os._exit(0)


def _undo(undo: Callable[[], bool], session: Session) -> None:
    """Try until something was undone, or there was nothing to undo at several looks."""
    deadline = time.monotonic() + session.wait_seconds
    looks = 0
    # The order of a parent that was killed may still be on its way.
    while looks < _LOOKS and time.monotonic() < deadline:
        with suppress(ProxmoxError):
            if undo():
                return
            looks += 1
        time.sleep(session.pause_seconds)


def resume_if_paused(session: Session, guest: Guest) -> bool:
    """Return whether the guest was paused, and runs now."""
    if not pve.look_at(session, guest).is_paused:
        return False
    report(f"resume of {guest.name} on {guest.node}")
    pve.resume(session, guest)
    return True


def tell_host(impact: Impact) -> str:
    """Return the last line that tells forewarn where the guest is now, if that is elsewhere."""
    if not impact.host:
        return ""
    with suppress(ProxmoxError):
        found = pve.find_guest(impact.session, impact.guest.name)
        if replace(impact, guest=found).has_moved:
            return f"\nhost={found.node}"
    return ""


def read_impact(options: argparse.Namespace, environment: Mapping[str, str]) -> Impact:
    """Return what the environment asks for."""
    session = pve.open_session(options)
    announced = float(environment.get("EVENT_DURATION") or -1)
    return Impact(
        session=session,
        guest=pve.find_guest(session, environment["EVENT_VM"]),
        host=environment.get("EVENT_HOST", ""),
        freeze_seconds=announced if announced > 0 else options.freeze,
        grace_seconds=options.grace,
        moves_live=options.migrate,
        targets=tuple(options.target),
    )


def main() -> str:
    """Carry out the impact, and return how it ended."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    pve.add_options(parser)
    parser.add_argument("--migrate", action="store_true", help="Freeze: migrate live")
    parser.add_argument(
        "--target", action="append", default=[], metavar="NODE", help="move only to these nodes"
    )
    parser.add_argument(
        "--grace", type=int, default=120, metavar="SECONDS", help="for a shutdown; default: 120"
    )
    parser.add_argument(
        "--freeze", type=float, default=5, metavar="SECONDS", help="if not announced; default: 5"
    )
    options = parser.parse_args()
    event_type, vm = os.environ.get("EVENT_TYPE", ""), os.environ.get("EVENT_VM", "")
    if event_type not in DEEDS or not vm:
        expected = ", ".join(DEEDS)
        raise ProxmoxError(f'set EVENT_VM, and EVENT_TYPE to one of {expected}, not "{event_type}"')
    impact = read_impact(options, os.environ)
    try:
        said = DEEDS[event_type](impact)
    except pve.PassingError:
        raise  # where the guest is cannot be asked either
    except ProxmoxError as error:
        raise ProxmoxError(f"{error}{tell_host(impact)}") from error
    return f"{said}{tell_host(impact)}"


if __name__ == "__main__":
    pve.run(main)
