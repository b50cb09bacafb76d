"""A stand-in for the API of Proxmox VE 9, with three nodes and a few guests.

Paths, parameters, answers and refusals follow the API viewer and the sources of pve-manager,
qemu-server and pve-ha-manager. A task takes a moment, and only then has its effect.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from tests.contrib.stand_in import Asked, Reply, StandIn

TOKEN = "forewarn@pve!maintenance=5d1b3c2e-8f0e-4b7a-9c55-2f2d3c4b5a69"  # noqa: S105
GIB = 1024**3
_processes = count(4001)


@dataclass(slots=True, kw_only=True)
class PveGuest:
    """A guest of the cluster; *config* is its file under /etc/pve/qemu-server."""

    vmid: int
    name: str
    node: str = "pve-1"
    status: str = "running"
    qmpstatus: str = "running"
    pid: int = field(default_factory=lambda: next(_processes))
    maxmem: int = 2 * GIB
    config: dict[str, str] = field(default_factory=dict)
    reported: object = None
    """What its agent answers; None if it does not run."""
    ignores_buttons: bool = False
    is_ha_managed: bool = False
    is_template: bool = False

    def start(self) -> None:
        self.status, self.qmpstatus, self.pid = "running", "running", next(_processes)

    def stop(self) -> None:
        self.status, self.qmpstatus, self.pid = "stopped", "stopped", 0


@dataclass(slots=True)
class Task:
    due_at: float
    kind: str
    vmid: int
    effect: Callable[[], str]
    exitstatus: str = ""


@dataclass(slots=True)
class Cluster:
    """What the API tells about, and changes."""

    guests: dict[int, PveGuest]
    free: dict[str, int] = field(
        default_factory=lambda: {"pve-1": 8 * GIB, "pve-2": 4 * GIB, "pve-3": 6 * GIB}
    )
    offline: set[str] = field(default_factory=set)
    in_maintenance: set[str] = field(default_factory=set)
    task_seconds: float = 0.1
    later: list[tuple[float, Callable[[], object]]] = field(default_factory=list)
    tasks: dict[str, Task] = field(default_factory=dict)
    api: StandIn = field(init=False)

    def __post_init__(self) -> None:
        self.api = StandIn(self.answer, prefix="/api2/json")

    def guest(self, name: str) -> PveGuest:
        return next(guest for guest in self.guests.values() if guest.name == name)

    def answer(self, asked: Asked) -> Reply:
        self._let_time_pass()
        if asked.headers.get("authorization") != f"PVEAPIToken={TOKEN}":
            return refuse(401, "invalid token value!")
        match asked.path.strip("/").split("/"):
            case ["cluster", "resources"]:
                return give(self._resources(asked.query.get("type", "")))
            case ["cluster", "ha", "status", "current"]:
                return give(self._ha_status())
            case ["nodes", _, "tasks", upid, "status"]:
                return give(self._task_status(upid))
            case ["nodes", node, "qemu", vmid, *rest]:
                return self._guest(node, int(vmid), "/".join(rest), asked)
            case _:
                return refuse(501, f"Method '{asked.line}' not implemented")

    def _let_time_pass(self) -> None:
        now = time.monotonic()
        for task in self.tasks.values():
            if not task.exitstatus and now >= task.due_at:
                task.exitstatus = task.effect()
        due = [each for each in self.later if now >= each[0]]
        for each in due:
            self.later.remove(each)
            each[1]()

    def _resources(self, kind: str) -> list[dict[str, Any]]:
        if kind == "node":
            return [
                {
                    "id": f"node/{node}", "type": "node", "node": node, "level": "",
                    "status": "offline" if node in self.offline else "online",
                    "cpu": 0.02, "maxcpu": 16, "mem": 32 * GIB - free, "maxmem": 32 * GIB,
                    "disk": 4 * GIB, "maxdisk": 90 * GIB, "uptime": 86400,
                }
                for node, free in self.free.items()
            ]  # fmt: skip
        guests = [self._resource(guest) for guest in self.guests.values()]
        container = {
            "id": "lxc/900", "type": "lxc", "vmid": 900, "name": "web-0", "node": "pve-3",
            "status": "running", "template": 0, "maxmem": GIB,
        }  # fmt: skip
        return [*guests, container]

    def _resource(self, guest: PveGuest) -> dict[str, Any]:
        return {
            "id": f"qemu/{guest.vmid}", "type": "qemu", "vmid": guest.vmid, "name": guest.name,
            "node": guest.node, "status": guest.status, "template": int(guest.is_template),
            "cpu": 0.01, "maxcpu": 2, "mem": GIB, "maxmem": guest.maxmem, "disk": 0,
            "maxdisk": 32 * GIB, "diskread": 0, "diskwrite": 0, "netin": 0, "netout": 0,
            "uptime": 3600,
        }  # fmt: skip

    def _ha_status(self) -> list[dict[str, Any]]:
        lines: list[dict[str, Any]] = [
            {"id": "quorum", "type": "quorum", "node": "pve-1", "status": "OK", "quorate": 1}
        ]
        for node in self.free:
            mode = "maintenance mode" if node in self.in_maintenance else "active"
            status = f"{node} ({mode}, Tue Nov 17 12:00:00 2026)"
            lines.append({"id": f"lrm:{node}", "type": "lrm", "node": node, "status": status})
        for guest in self.guests.values():
            if guest.is_ha_managed:
                sid, state = f"vm:{guest.vmid}", "started"
                lines.append({
                    "id": f"service:{sid}", "type": "service", "sid": sid, "node": guest.node,
                    "state": state, "crm_state": state, "request_state": state,
                    "status": f"{sid} ({guest.node}, {state})",
                })  # fmt: skip
        return lines

    def _task_status(self, upid: str) -> dict[str, Any]:
        task = self.tasks[upid]
        known = {
            "upid": upid, "node": upid.split(":")[1], "type": task.kind, "id": str(task.vmid),
            "user": "forewarn@pve", "tokenid": "maintenance", "pid": 1234, "pstart": 5678,
            "starttime": 1790000000, "status": "stopped" if task.exitstatus else "running",
        }  # fmt: skip
        return {**known, "exitstatus": task.exitstatus} if task.exitstatus else known

    def _guest(self, node: str, vmid: int, rest: str, asked: Asked) -> Reply:
        guest = self.guests.get(vmid)
        if guest is None or guest.node != node:
            file = f"nodes/{node}/qemu-server/{vmid}.conf"
            return refuse(500, f"Configuration file '{file}' does not exist")
        if asked.method == "POST":
            return self._order(guest, rest.removeprefix("status/"), asked.fields)
        answers: dict[str, Callable[[], Reply]] = {
            "status/current": lambda: give(_status_of(guest)),
            "config": lambda: give({"name": guest.name, "memory": "2048", **guest.config}),
            "migrate": lambda: give(self._precondition(guest)),
            "agent/network-get-interfaces": lambda: _ask_agent(guest),
        }
        return answers[rest]()

    def _precondition(self, guest: PveGuest) -> dict[str, Any]:
        return {
            "running": int(guest.status == "running"),
            "allowed_nodes": [node for node in self.free if node != guest.node],
            "not_allowed_nodes": {},
            "local_disks": [{"volid": "local-lvm:vm-100-disk-0", "size": GIB}]
            if "local" in guest.config.get("scsi0", "")
            else [],
            "local_resources": [],
            "mapped-resources": [],
            "mapped-resource-info": {},
        }

    def _order(self, guest: PveGuest, verb: str, fields: Mapping[str, str]) -> Reply:
        refusal = _refusal(guest, verb, fields)
        if refusal:
            return refuse(500, refusal)
        kind, effect = self._effects(guest, fields)[verb]
        if guest.is_ha_managed and verb in {"shutdown", "start", "migrate"}:
            # The task ends when the HA manager has been asked.
            self.later.append((time.monotonic() + 3 * self.task_seconds, effect))
            kind, effect = f"ha{verb}", lambda: "OK"
        number = len(self.tasks)
        user = TOKEN.partition("=")[0]
        upid = f"UPID:{guest.node}:{number:08X}:0004D2A1:6AB1C2D3:{kind}:{guest.vmid}:{user}:"
        due_at = time.monotonic() + self.task_seconds
        self.tasks[upid] = Task(due_at, kind, guest.vmid, effect)
        return give(upid)

    def _effects(
        self, guest: PveGuest, fields: Mapping[str, str]
    ) -> dict[str, tuple[str, Callable[[], str]]]:
        def qmp(status: str) -> Callable[[], str]:
            return lambda: _set(guest, status)

        return {
            "suspend": ("qmpause", qmp("paused")),
            "resume": ("qmresume", qmp("running")),
            "reset": ("qmreset", qmp("running")),
            "start": ("qmstart", lambda: _run(guest.start)),
            "reboot": ("qmreboot", lambda: self._reboot(guest)),
            "shutdown": ("qmshutdown", lambda: _shut_down(guest, fields)),
            "migrate": ("qmigrate", lambda: _migrate(guest, fields["target"])),
        }

    def _reboot(self, guest: PveGuest) -> str:
        if guest.ignores_buttons:
            return "VM quit/powerdown failed - got timeout"
        guest.stop()
        # qmeventd starts it again, after the task.
        self.later.append((time.monotonic() + 2 * self.task_seconds, guest.start))
        return "OK"


def _refusal(guest: PveGuest, verb: str, fields: Mapping[str, str]) -> str:
    is_stopped = guest.status == "stopped"
    if verb in {"suspend", "resume", "reboot", "reset"} and is_stopped:
        return f"VM {guest.vmid} not running"
    if verb == "reboot" and guest.qmpstatus == "paused":
        return "VM is paused - cannot shutdown"
    if verb == "start" and not is_stopped:
        return f"VM {guest.vmid} already running"
    if verb == "migrate" and not is_stopped and fields.get("online") != "1":
        return "can't migrate running VM without --online"
    return ""


def _ask_agent(guest: PveGuest) -> Reply:
    if guest.reported is None:
        return refuse(500, "QEMU guest agent is not running")
    return give({"result": guest.reported})


def _set(guest: PveGuest, status: str) -> str:
    guest.qmpstatus = status
    return "OK"


def _run(effect: Callable[[], object]) -> str:
    effect()
    return "OK"


def _shut_down(guest: PveGuest, fields: Mapping[str, str]) -> str:
    if guest.ignores_buttons and fields.get("forceStop") != "1":
        return "VM quit/powerdown failed - got timeout"
    guest.stop()
    return "OK"


def _migrate(guest: PveGuest, target: str) -> str:
    guest.node = target
    return "OK"


def _status_of(guest: PveGuest) -> dict[str, Any]:
    known = {
        "vmid": guest.vmid, "name": guest.name, "status": guest.status,
        "qmpstatus": guest.qmpstatus, "cpus": 2, "maxmem": guest.maxmem, "mem": GIB,
        "maxdisk": 32 * GIB, "disk": 0, "uptime": 3600, "ha": {"managed": int(guest.is_ha_managed)},
    }  # fmt: skip
    return {**known, "pid": guest.pid} if guest.pid else known


def give(data: object) -> Reply:
    return Reply(200, {"data": data})


def refuse(status: int, message: str) -> Reply:
    return Reply(status, {"data": None, "message": f"{message}\n"})
