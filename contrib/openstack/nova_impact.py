#!/usr/bin/env python3
"""Carry out one impact of forewarn on one server of an OpenStack cloud.

forewarn runs it for a [[command]] table and says what to do in EVENT_TYPE, EVENT_VM, EVENT_HOST
and EVENT_DURATION. Each deed looks at the server first, so that a second run by hand does only
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

import nova
from keystone import OpenStackError, PassingError, RefusedError
from nova import Server, Session, report

_DONE: Final = b"."
_LOOKS: Final = 10
_OFF: Final = frozenset({"SHUTOFF", "SHELVED", "SHELVED_OFFLOADED", "SUSPENDED"})
"""A server in one of these has no guest that could be rebooted, frozen or shut down."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Impact:
    """What is to be done to *server*, which forewarn believes to be on *host*."""

    session: Session
    server: Server
    host: str
    freeze_seconds: float
    grace_seconds: float
    moves_live: bool
    target: str | None
    evacuates: bool
    deletes: bool

    def order(self, action: str, details: object = None) -> None:
        nova.act(self.session, self.server, action, details)

    def settle(self, *wanted: str, seconds: float | None = None) -> Server:
        return nova.settle(self.session, self.server, *wanted, seconds=seconds)

    @property
    def has_moved(self) -> bool:
        """Whether the server is no longer where it was when the event was announced."""
        known = bool(self.host and self.server.host)
        return known and self.server.host.casefold() != self.host.casefold()


def freeze(impact: Impact) -> str:
    """Pause the server for the announced time, or move it live."""
    session, server = impact.session, impact.server
    if server.status in _OFF:
        return f"{server.name} is {server.status}: nothing to freeze"
    if impact.moves_live:
        return move_live(impact)
    if server.status == "PAUSED":
        # An earlier run was killed together with its guard.
        nova.unpause(session, server)
        return f"{server.name} was paused already and runs again"
    with guard(lambda: unpause_if_paused(session, server), session):
        impact.order("pause")
        impact.settle("PAUSED")
        report(f"{server.name} is paused for {impact.freeze_seconds:g} s")
        time.sleep(impact.freeze_seconds)
        unpause_if_paused(session, server)
    return f"{server.name} was paused for {impact.freeze_seconds:g} s and runs again"


def reboot(impact: Impact) -> str:
    """Reboot the server softly, or hard after the grace time."""
    server = impact.server
    if server.status in _OFF:
        return f"{server.name} is {server.status}: nothing to reboot"
    if server.status == "PAUSED":
        # Nova refuses a soft reboot of a paused server.
        nova.unpause(impact.session, server)
    impact.order("reboot", {"type": "SOFT"})
    try:
        impact.settle("ACTIVE", seconds=impact.grace_seconds)
    except nova.WaitedInVainError:
        impact.order("reboot", {"type": "HARD"})
        impact.settle("ACTIVE")
        return f"{server.name} did not reboot within {impact.grace_seconds:g} s: rebooted hard"
    return f"{server.name} was rebooted"


def redeploy(impact: Impact) -> str:
    """Stop the server, move it to another host and start it there."""
    server = impact.server
    if server.status == "VERIFY_RESIZE":
        # An earlier run was killed after the move.
        return confirm(impact)
    if impact.has_moved:
        return tell_place(impact.settle())
    if impact.evacuates and is_host_down(impact):
        impact.order("evacuate", {"host": impact.target} if impact.target else {})
        return check_move(server, impact.settle("ACTIVE", "SHUTOFF"))
    impact.order("migrate", {"host": impact.target} if impact.target else None)
    # The server falls back to its old status where no host has room. With resize_confirm_window,
    # Nova confirms by itself.
    settled = impact.settle("VERIFY_RESIZE", "ACTIVE", "SHUTOFF")
    return confirm(impact) if settled.status == "VERIFY_RESIZE" else check_move(server, settled)


def preempt(impact: Impact) -> str:
    """Stop the server."""
    if impact.server.status not in _OFF:
        if impact.server.status == "PAUSED":
            # Nova refuses to stop a paused server.
            nova.unpause(impact.session, impact.server)
        impact.order("os-stop")
        impact.settle("SHUTOFF")
    return f"{impact.server.name} is stopped"


def terminate(impact: Impact) -> str:
    """Stop the server; delete it as well where the operator asked for that."""
    said = preempt(impact)
    if not impact.deletes:
        return said
    session, server = impact.session, impact.server
    report(f"delete {server.name}")
    session.change("DELETE", server.path)
    session.wait(lambda: is_gone(session, server), bool, f'"{server.name}" to be deleted')
    return f"{server.name} is deleted"


DEEDS: Final[Mapping[str, Callable[[Impact], str]]] = {
    "Freeze": freeze,
    "Reboot": reboot,
    "Redeploy": redeploy,
    "Preempt": preempt,
    "Terminate": terminate,
}


def move_live(impact: Impact) -> str:
    """Migrate the running server, unless it has left its host already."""
    if impact.has_moved:
        return tell_place(impact.server)
    impact.order("os-migrateLive", {"host": impact.target, "block_migration": "auto"})
    return check_move(impact.server, impact.settle("ACTIVE", "PAUSED"))


def confirm(impact: Impact) -> str:
    """Give up the copy of the server on its old host."""
    impact.order("confirmResize")
    return check_move(impact.server, impact.settle("ACTIVE", "SHUTOFF"))


def check_move(before: Server, after: Server) -> str:
    """Refuse to call a server moved that is where it was."""
    if before.host and before.host == after.host and before.status != "VERIFY_RESIZE":
        raise OpenStackError(f'"{before.name}" is still on "{after.host}": Nova could not move it')
    return tell_place(after)


def tell_place(server: Server) -> str:
    return f"{server.name} is {server.status} on {server.host or 'another host'}"


def is_host_down(impact: Impact) -> bool:
    """Return whether Nova has lost the host of the server."""
    query = {"binary": "nova-compute", "host": impact.server.host or impact.host}
    services = impact.session.get("/os-services", **query)["services"]
    return bool(services) and all(each["state"] == "down" for each in services)


def is_gone(session: Session, server: Server) -> bool:
    try:
        return nova.look_at(session, server.id).status == "DELETED"
    except RefusedError as error:
        if error.status != 404:
            raise
        return True


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
        with suppress(OpenStackError):
            if undo():
                return
            looks += 1
        time.sleep(session.pause_seconds)


def unpause_if_paused(session: Session, server: Server) -> bool:
    """Return whether the server was paused, and runs now."""
    if nova.look_at(session, server.id).status != "PAUSED":
        return False
    nova.unpause(session, server)
    return True


def tell_host(impact: Impact) -> str:
    """Return the last line that tells forewarn where the server is now, if that is elsewhere."""
    if not impact.host:
        return ""
    with suppress(OpenStackError):
        found = nova.look_at(impact.session, impact.server.id)
        if replace(impact, server=found).has_moved:
            return f"\nhost={found.host}"
    return ""


def read_impact(options: argparse.Namespace, environment: Mapping[str, str]) -> Impact:
    """Return what the environment asks for."""
    session = nova.open_session(options)
    announced = float(environment.get("EVENT_DURATION") or -1)
    name, all_projects = environment["EVENT_VM"], options.all_projects
    return Impact(
        session=session,
        server=nova.find_server(session, name, all_projects=all_projects),
        host=environment.get("EVENT_HOST", ""),
        freeze_seconds=announced if announced > 0 else options.freeze,
        grace_seconds=options.grace,
        moves_live=options.migrate,
        target=options.target,
        evacuates=options.evacuate,
        deletes=options.delete,
    )


def main() -> str:
    """Carry out the impact, and return how it ended."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    nova.add_options(parser)
    parser.add_argument("--migrate", action="store_true", help="Freeze: migrate live")
    parser.add_argument("--target", metavar="HOST", help="target host; default: Nova chooses")
    parser.add_argument(
        "--evacuate", action="store_true", help="Redeploy: rebuild elsewhere if the host is down"
    )
    parser.add_argument("--delete", action="store_true", help="Terminate: delete the server")
    parser.add_argument(
        "--grace",
        type=float,
        default=180,
        metavar="SECONDS",
        help="grace period of a soft reboot; default: 180",
    )
    parser.add_argument(
        "--freeze", type=float, default=5, metavar="SECONDS", help="if not announced; default: 5"
    )
    options = parser.parse_args()
    event_type, vm = os.environ.get("EVENT_TYPE", ""), os.environ.get("EVENT_VM", "")
    if event_type not in DEEDS or not vm:
        expected = ", ".join(DEEDS)
        raise OpenStackError(
            f'set EVENT_VM, and EVENT_TYPE to one of {expected}, not "{event_type}"'
        )
    impact = read_impact(options, os.environ)
    try:
        said = DEEDS[event_type](impact)
    except PassingError:
        raise  # where the server is cannot be asked either
    except OpenStackError as error:
        raise OpenStackError(f"{error}{tell_host(impact)}") from error
    return f"{said}{tell_host(impact)}"


if __name__ == "__main__":
    nova.run(main)
