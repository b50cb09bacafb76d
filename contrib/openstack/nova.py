"""What the programs of this folder share: options, a session with Nova's API, and servers.

A request that only reads is repeated after a passing failure; one that changes something is never
sent twice.
"""

import argparse
import re
import ssl
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import urlencode

import keystone
from keystone import OpenStackError, PassingError, RefusedError, Transport

MICROVERSION: Final = "2.79"
"""Of the release Train; every later release has it."""
_BACK_OFF: Final = (1, 2, 4, 8)
"""Pauses before further attempts, as multiples of the pause between two looks."""
_PAGE: Final = 500
_UUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_Found = TypeVar("_Found")


class WaitedInVainError(OpenStackError):
    """What was waited for did not happen in time."""


@dataclass(slots=True, kw_only=True)
class Session:
    """Nova, as the user of the OS_* variables sees it."""

    transport: Transport
    credentials: Mapping[str, str]
    wait_seconds: float
    pause_seconds: float
    _token: str = field(default="", repr=False)
    _compute: str = ""

    def get(self, path: str, **query: str) -> Any:
        """Return what is at *path*; ask again after a passing failure."""
        where = f"{path}?{urlencode(query)}" if query else path
        for pause in _BACK_OFF:
            try:
                return self._ask("GET", where)
            except PassingError:
                time.sleep(pause * self.pause_seconds)
        return self._ask("GET", where)

    def change(self, method: str, path: str, body: object = None) -> Any:
        """Send a request that changes something, once."""
        try:
            return self._ask(method, path, body)
        except PassingError as error:
            raise OpenStackError(f"{error}; check whether it was carried out") from error

    def wait(
        self,
        look: Callable[[], _Found],
        is_so: Callable[[_Found], bool],
        what: str,
        seconds: float | None = None,
    ) -> _Found:
        """Look until *is_so*, and return what was seen then."""
        limit = self.wait_seconds if seconds is None else seconds
        deadline = time.monotonic() + limit
        while not is_so(found := look()):
            if time.monotonic() > deadline:
                raise WaitedInVainError(f"timed out after {limit:g} s waiting for {what}")
            time.sleep(self.pause_seconds)
        return found

    def _ask(self, method: str, path: str, body: object = None) -> Any:
        had_token = bool(self._token)
        try:
            return self._ask_nova(method, path, body)
        except RefusedError as error:
            # A token expires; a request that was refused for that did nothing.
            if error.status != 401 or not had_token:
                raise
        self._token = ""
        return self._ask_nova(method, path, body)

    def _ask_nova(self, method: str, path: str, body: object) -> Any:
        if not self._token:
            self._log_in()
        headers = {
            "X-Auth-Token": self._token,
            "OpenStack-API-Version": f"compute {MICROVERSION}",
        }
        return self.transport.send(method, f"{self._compute}{path}", headers, body)[1]

    def _log_in(self) -> None:
        url = self.credentials["OS_AUTH_URL"].rstrip("/")
        url = url if url.endswith("/v3") else f"{url}/v3"
        order = keystone.write_authentication(self.credentials)
        headers, answer = self.transport.send("POST", f"{url}/auth/tokens", {}, order)
        self._compute = keystone.find_compute(answer["token"]["catalog"], self.credentials)
        self._token = headers["x-subject-token"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A server of Nova; *task* is what Nova is doing to it, *host* is unknown to non-admins."""

    id: str
    name: str
    status: str
    task: str
    host: str
    fault: str

    @property
    def path(self) -> str:
        return f"/servers/{self.id}"


def read_server(found: Mapping[str, Any]) -> Server:
    """Return the server that a part of an answer describes."""
    return Server(
        id=str(found["id"]),
        name=str(found["name"]),
        status=str(found["status"]),
        task=str(found.get("OS-EXT-STS:task_state") or ""),
        host=str(found.get("OS-EXT-SRV-ATTR:host") or ""),
        fault=str((found.get("fault") or {}).get("message", "")),
    )


def list_servers(session: Session, **query: str) -> Iterator[Mapping[str, Any]]:
    """Yield all servers that match *query*, page by page."""
    marker: dict[str, str] = {}
    while True:
        page = session.get("/servers/detail", limit=str(_PAGE), **marker, **query)
        yield from page["servers"]
        if not any(link["rel"] == "next" for link in page.get("servers_links", ())):
            return
        marker = {"marker": str(page["servers"][-1]["id"])}


def find_server(session: Session, name: str, *, all_projects: bool) -> Server:
    """Return the only server of that *name*, or the one with that id."""
    if _UUID.fullmatch(name.lower()):
        return look_at(session, name.lower())
    query = {"all_tenants": "1"} if all_projects else {}
    # Nova takes a pattern; what means something else in one is compared here only.
    if re.fullmatch(r"[\w.-]+", name):
        query["name"] = f"^{name}$"
    found = [
        read_server(each)
        for each in list_servers(session, **query)
        if str(each["name"]).casefold() == name.casefold()
    ]
    if not found:
        raise OpenStackError(f'no server is named "{name}"')
    if len(found) > 1:
        ids = ", ".join(each.id for each in found)
        raise OpenStackError(f'several servers are named "{name}": {ids}; rename all but one')
    return found[0]


def look_at(session: Session, server_id: str) -> Server:
    """Return the server as it is now."""
    return read_server(session.get(f"/servers/{server_id}")["server"])


def act(session: Session, server: Server, action: str, details: object = None) -> None:
    """Order an action of a server."""
    report(f"{action} of {server.name}")
    session.change("POST", f"{server.path}/action", {action: details})


def settle(session: Session, server: Server, *wanted: str, seconds: float | None = None) -> Server:
    """Wait until Nova is done with *server* and it has a *wanted* status; any if none is given."""

    def is_settled(found: Server) -> bool:
        if found.status == "ERROR" and not found.task:
            raise OpenStackError(f'"{server.name}" is in ERROR: {found.fault or "no reason given"}')
        return not found.task and (not wanted or found.status in wanted)

    what = f'"{server.name}" to become {" or ".join(wanted) or "idle"}'
    return session.wait(lambda: look_at(session, server.id), is_settled, what, seconds)


def unpause(session: Session, server: Server) -> None:
    """Let a paused server run."""
    act(session, server, "unpause")
    settle(session, server, "ACTIVE")


def report(line: str) -> None:
    """Print progress at once: `forewarn event explain` shows the last line."""
    print(line, flush=True)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that every program of this folder has."""
    parser.add_argument(
        "--credentials", type=Path, help="file with OS_* variables; default: the environment"
    )
    parser.add_argument("--ca-file", type=Path, help="CA certificates; default: OS_CACERT")
    parser.add_argument("--allow-http", action="store_true", help="allow secrets over plain HTTP")
    parser.add_argument("--all-projects", action="store_true", help="needs role admin")
    parser.add_argument(
        "--request-timeout", type=float, default=30, metavar="SECONDS", help="default: 30"
    )
    parser.add_argument(
        "--wait",
        type=float,
        default=1800,
        metavar="SECONDS",
        help="timeout for each action; default: 1800",
    )
    parser.add_argument(
        "--pause", type=float, default=2, metavar="SECONDS", help="between checks; default: 2"
    )


def open_session(options: argparse.Namespace) -> Session:
    """Return the session that *options* describe; nothing is sent yet."""
    credentials = keystone.read_credentials(options.credentials)
    keystone.need(credentials, "OS_AUTH_URL")
    ca_file = options.ca_file or credentials.get("OS_CACERT") or None
    try:
        context = ssl.create_default_context(cafile=ca_file)
    except OSError as error:
        raise OpenStackError(f'cannot use the CA file "{ca_file}": {error}') from error
    transport = Transport(
        context=context, seconds=options.request_timeout, allows_http=options.allow_http
    )
    return Session(
        transport=transport,
        credentials=credentials,
        wait_seconds=options.wait,
        pause_seconds=options.pause,
    )


def run(main: Callable[[], str]) -> None:
    """Run *main*, print its last line, and exit with 1 and the reason if it fails."""
    try:
        report(main())
    except OpenStackError as error:
        print(error, file=sys.stderr, flush=True)
        sys.exit(1)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        why = f"{type(error).__name__}: {error}"
        print(f"OpenStack sent an unexpected answer: {why}", file=sys.stderr, flush=True)
        sys.exit(1)
