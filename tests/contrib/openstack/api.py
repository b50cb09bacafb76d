"""A stand-in for Keystone v3 and Nova, microversion 2.79, with three compute hosts and servers.

Paths, bodies, answers and refusals follow the API references of both and the samples in the
documentation of Nova. What Nova is doing to a server is its task_state for a moment, and only then
has its effect.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.contrib.stand_in import Asked, Reply, StandIn

PASSWORD = "correct horse"  # noqa: S105
SECRET = "rEaqvJka48mpv"  # noqa: S105
PROJECT = "6f70656e737461636b20342065766572"
OTHER_PROJECT = "a6944d763bf64ee6a275f1263fae0352"
COMPUTE = f"/compute/v2.1/{PROJECT}"
Effect = Callable[[], None]


@dataclass(slots=True, kw_only=True)
class NovaServer:
    """A server; *task* and *due* are what Nova is doing to it, and when that is over."""

    id: str
    name: str
    host: str = "compute-1"
    status: str = "ACTIVE"
    project: str = PROJECT
    address: str = ""
    metadata: dict[str, str] = field(default_factory=dict)
    ignores_buttons: bool = False
    task: str | None = None
    due: tuple[float, Effect] | None = None
    fault: str = ""


@dataclass(slots=True)
class Cloud:
    """What the APIs tell about, and change."""

    servers: list[NovaServer]
    services: dict[str, dict[str, Any]] = field(default_factory=dict)
    tokens: set[str] = field(default_factory=set)
    has_room: bool = True
    task_seconds: float = 0.1
    page: int = 2
    api: StandIn = field(init=False)

    def __post_init__(self) -> None:
        self.api = StandIn(self.answer)
        for number, host in enumerate(("compute-1", "compute-2", "compute-3")):
            self.services[host] = {
                "id": f"e81d66a4-ddd3-4aba-8a84-171d1cb4d33{number}", "binary": "nova-compute",
                "disabled_reason": None, "host": host, "state": "up", "status": "enabled",
                "updated_at": "2026-11-17T12:00:00.000000", "forced_down": False, "zone": "nova",
            }  # fmt: skip

    def server(self, name: str) -> NovaServer:
        return next(server for server in self.servers if server.name == name)

    def answer(self, asked: Asked) -> Reply:
        self._let_time_pass()
        if asked.path == "/identity/v3/auth/tokens":
            return self._log_in(asked)
        if asked.headers.get("x-auth-token") not in self.tokens:
            return unauthorized()
        return self._ask_nova(asked)

    def _ask_nova(self, asked: Asked) -> Reply:
        assert asked.headers["openstack-api-version"] == "compute 2.79"
        match [asked.method, *asked.path.removeprefix(f"{COMPUTE}/").split("/")]:
            case ["GET", "servers", "detail"]:
                return Reply(200, self._list(asked))
            case [method, "servers", server_id, *rest]:
                return self._one(method, server_id, rest, asked)
            case ["GET", "os-services"]:
                return Reply(200, {"services": self._services(asked)})
            case ["PUT", "os-services", service_id]:
                return self._change_service(service_id, asked)
            case _:
                return refuse(404, "itemNotFound", f"no {asked.line} here")

    def _let_time_pass(self) -> None:
        for server in [*self.servers]:
            if server.due and time.monotonic() >= server.due[0]:
                effect, server.due, server.task = server.due[1], None, None
                effect()

    def _log_in(self, asked: Asked) -> Reply:
        identity = asked.fields["auth"]["identity"]
        (method,) = identity["methods"]
        if method == "password":
            user = identity["password"]["user"]
            is_right = (user.get("name"), user["password"]) == ("admin", PASSWORD)
            assert asked.fields["auth"]["scope"]["project"]
        else:
            key = identity["application_credential"]
            is_right = (key["id"], key["secret"]) == ("423f19a4ac1e4f48bbb4180756e6eb6c", SECRET)
        if not is_right:
            return unauthorized()
        token = f"gAAAA{len(self.tokens)}"
        self.tokens.add(token)
        return Reply(201, {"token": self._token(method)}, {"X-Subject-Token": token})

    def _token(self, method: str) -> dict[str, Any]:
        def endpoint(interface: str, url: str) -> dict[str, str]:
            region = {"region": "RegionOne", "region_id": "RegionOne"}
            return {**region, "interface": interface, "url": url, "id": f"{interface}-1"}

        compute = [
            endpoint("admin", "http://10.255.255.1:8774/v2.1"),
            endpoint("public", f"{self.api.url}{COMPUTE}"),
        ]
        return {
            "methods": [method],
            "expires_at": "2026-11-18T02:58:43.578887Z",
            "project": {"id": PROJECT, "name": "admin", "domain": {"id": "default"}},
            "catalog": [
                {"type": "identity", "name": "keystone", "id": "1", "endpoints": []},
                {"type": "compute", "name": "nova", "id": "2", "endpoints": compute},
            ],
        }

    def _list(self, asked: Asked) -> dict[str, Any]:
        pattern = asked.query.get("name", "").strip("^$")
        shown = [
            server
            for server in self.servers
            if (asked.query.get("all_tenants") or server.project == PROJECT)
            and asked.query.get("host") in {None, server.host}
            and (not pattern or server.name.casefold() == pattern.casefold())
        ]
        after = asked.query.get("marker")
        begin = 1 + [server.id for server in shown].index(after) if after else 0
        page = shown[begin : begin + self.page]
        answer: dict[str, Any] = {"servers": [_describe(server) for server in page]}
        if begin + self.page < len(shown):
            # As behind a balancer: the link names another place.
            href = f"http://10.255.255.1/servers/detail?marker={page[-1].id}"
            answer["servers_links"] = [{"rel": "next", "href": href}]
        return answer

    def _one(self, method: str, server_id: str, rest: list[str], asked: Asked) -> Reply:
        server = next((each for each in self.servers if each.id == server_id), None)
        if server is None:
            return refuse(404, "itemNotFound", f"Instance {server_id} could not be found.")
        if method == "DELETE":
            self._begin(server, "deleting", lambda: self.servers.remove(server))
            return Reply(204)
        if rest == ["action"]:
            ((action, details),) = asked.fields.items()
            return self._act(server, action, details or {})
        return Reply(200, {"server": _describe(server)})

    def _act(self, server: NovaServer, action: str, details: dict[str, Any]) -> Reply:
        soft = details.get("type") == "SOFT"
        if server.status not in _allowed(action, is_soft=soft):
            message = f"Cannot '{action}' instance {server.id} while it is in vm_state "
            return refuse(409, "conflictingRequest", f"{message}{server.status.lower()}")
        if action == "reboot":
            self._reboot(server, is_soft=soft)
        elif action in {"migrate", "os-migrateLive", "evacuate"}:
            self._move(server, action, details.get("host"))
        else:
            task, status = STATES[action]
            self._begin(server, task, lambda: _set(server, status))
        return Reply(202)

    def _begin(self, server: NovaServer, task: str | None, effect: Effect) -> None:
        server.task, server.due = task, (time.monotonic() + self.task_seconds, effect)

    def _reboot(self, server: NovaServer, *, is_soft: bool) -> None:
        server.status = "REBOOT" if is_soft else "HARD_REBOOT"
        if is_soft and server.ignores_buttons:
            server.task, server.due = "rebooting", None
        else:
            task = "rebooting" if is_soft else "rebooting_hard"
            self._begin(server, task, lambda: _set(server, "ACTIVE"))

    def _move(self, server: NovaServer, action: str, target: str | None) -> None:
        before = server.status
        task = {"migrate": "resize_migrating", "evacuate": "rebuilding"}.get(action, "migrating")
        after = "VERIFY_RESIZE" if action == "migrate" else before

        def arrive() -> None:
            server.status = after if self.has_room else before
            if self.has_room:
                free = [host for host in self.services if host != server.host]
                server.host = target or free[-1]

        self._begin(server, task, arrive)
        server.status = {"migrate": "RESIZE", "evacuate": "REBUILD"}.get(action, "MIGRATING")

    def _services(self, asked: Asked) -> list[dict[str, Any]]:
        host = asked.query.get("host")
        assert asked.query["binary"] == "nova-compute"
        return [each for each in self.services.values() if host in {None, each["host"]}]

    def _change_service(self, service_id: str, asked: Asked) -> Reply:
        service = next(each for each in self.services.values() if each["id"] == service_id)
        service["disabled_reason"] = None
        service.update(asked.fields)
        return Reply(200, {"service": service})


STATES: dict[str, tuple[str | None, str]] = {
    "pause": ("pausing", "PAUSED"),
    "unpause": ("unpausing", "ACTIVE"),
    "os-stop": ("powering-off", "SHUTOFF"),
    "os-start": ("powering-on", "ACTIVE"),
    "confirmResize": (None, "ACTIVE"),
}


def _allowed(action: str, *, is_soft: bool) -> set[str]:
    """Return the statuses in which the API reference allows *action*."""
    if action == "reboot" and not is_soft:
        return {"ACTIVE", "ERROR", "HARD_REBOOT", "PAUSED", "REBOOT", "SHUTOFF", "SUSPENDED"}
    return {
        "pause": {"ACTIVE"},
        "unpause": {"PAUSED"},
        "reboot": {"ACTIVE"},
        "os-stop": {"ACTIVE", "ERROR"},
        "os-start": {"SHUTOFF"},
        "migrate": {"ACTIVE", "SHUTOFF"},
        "confirmResize": {"VERIFY_RESIZE"},
        "os-migrateLive": {"ACTIVE", "PAUSED"},
        "evacuate": {"ACTIVE", "SHUTOFF", "ERROR"},
    }[action]


def _set(server: NovaServer, status: str) -> None:
    server.status = status


def _describe(server: NovaServer) -> dict[str, Any]:
    fixed = {
        "addr": server.address, "version": 4, "OS-EXT-IPS:type": "fixed",
        "OS-EXT-IPS-MAC:mac_addr": "fa:16:3e:12:66:b0",
    }  # fmt: skip
    floating = {**fixed, "addr": "203.0.113.7", "OS-EXT-IPS:type": "floating"}
    known = {
        "id": server.id, "name": server.name, "status": server.status, "progress": 0,
        "tenant_id": server.project, "user_id": "fake", "metadata": server.metadata,
        "addresses": {"private": [fixed, floating]} if server.address else {},
        "flavor": {
            "disk": 1, "ephemeral": 0, "extra_specs": {}, "original_name": "m1.tiny",
            "ram": 512, "swap": 0, "vcpus": 1,
        },
        "OS-EXT-AZ:availability_zone": "nova", "OS-EXT-SRV-ATTR:host": server.host,
        "OS-EXT-SRV-ATTR:hypervisor_hostname": f"{server.host}.example.org",
        "OS-EXT-STS:power_state": 1, "OS-EXT-STS:task_state": server.task,
        "OS-EXT-STS:vm_state": server.status.lower(), "locked": False, "tags": [],
        "created": "2026-11-01T00:00:00Z", "updated": "2026-11-17T12:00:00Z",
    }  # fmt: skip
    fault = {"code": 500, "created": "2026-11-17T12:00:00Z", "message": server.fault}
    return {**known, "fault": fault} if server.fault else known


def unauthorized() -> Reply:
    message = "The request you have made requires authentication."
    return Reply(401, {"error": {"code": 401, "title": "Unauthorized", "message": message}})


def refuse(status: int, kind: str, message: str) -> Reply:
    return Reply(status, {kind: {"code": status, "message": message}})
