"""What the programs of this folder share: options, a session with Proxmox VE's API, and guests.

Each request has its own connection and a timeout. A request that only reads is repeated after a
passing failure; one that changes something is never sent twice. Redirects are not followed, so
that the token goes to one server only.
"""

import argparse
import ipaddress
import json
import os
import ssl
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import SplitResult, quote, urlencode, urlsplit

TOKEN_VARIABLE: Final = "PVE_API_TOKEN"  # noqa: S105 - a name, not a secret
_PASSING: Final = frozenset({502, 503, 504, 595, 596, 599})
"""What pveproxy answers while a node or a daemon is away."""
_BACK_OFF: Final = (1, 2, 4, 8)
"""Pauses before further attempts, as multiples of the pause between two looks."""
_LONGEST_ANSWER: Final = 64 * 1024 * 1024
_Found = TypeVar("_Found")


class ProxmoxError(Exception):
    """Say why it cannot be done, in a sentence without a full stop."""


class PassingError(ProxmoxError):
    """No answer, or one that may be different in a moment."""


class RefusedError(ProxmoxError):
    """An answer that says no."""


class TaskFailedError(ProxmoxError):
    """A task that did not end with OK."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """The API at *url*, as the owner of *token* sees it."""

    url: SplitResult
    token: str
    context: ssl.SSLContext
    request_seconds: float
    wait_seconds: float
    pause_seconds: float

    def get(self, path: str, **query: str) -> Any:
        """Return what is at *path*; ask again after a passing failure."""
        where = f"{path}?{urlencode(query)}" if query else path
        for pause in _BACK_OFF:
            try:
                return self._ask("GET", where)
            except PassingError:
                time.sleep(pause * self.pause_seconds)
        return self._ask("GET", where)

    def run_task(self, path: str, **fields: str | int) -> None:
        """Begin a task with one POST to *path*, and return when it has succeeded."""
        try:
            upid = str(self._ask("POST", path, urlencode(fields)))
        except PassingError as error:
            raise ProxmoxError(f"{error}; check whether {path} was carried out") from error
        parts = upid.split(":")
        if len(parts) < 8:
            raise ProxmoxError(f'Proxmox VE answers "{upid[:40]}" to {path} instead of a task')
        _, node, _, _, _, kind, subject, *_ = parts
        where = f"/nodes/{node}/tasks/{quote(upid, safe='')}/status"
        status = self.wait(
            lambda: self.get(where),
            lambda found: found.get("status") == "stopped",
            f"task {kind} of {subject} to end",
        )
        result = str(status.get("exitstatus", "no exit status"))
        # A task that warns has done its work.
        if result != "OK" and not result.startswith("WARNINGS"):
            raise TaskFailedError(f"task {kind} of {subject} failed: {result}")

    def wait(
        self, look: Callable[[], _Found], is_so: Callable[[_Found], bool], what: str
    ) -> _Found:
        """Look until *is_so*, and return what was seen then."""
        deadline = time.monotonic() + self.wait_seconds
        while not is_so(found := look()):
            if time.monotonic() > deadline:
                raise ProxmoxError(f"timed out after {self.wait_seconds:g} s waiting for {what}")
            time.sleep(self.pause_seconds)
        return found

    def _ask(self, method: str, path: str, form: str | None = None) -> Any:
        headers = {"Authorization": f"PVEAPIToken={self.token}", "Accept": "application/json"}
        if form is not None:
            headers["Content-Type"] = "application/x-www-form-urlencoded"
        connection = self._connect()
        try:
            connection.request(method, f"{self.url.path}/api2/json{path}", form, headers)
            answer = connection.getresponse()
            content = answer.read(_LONGEST_ANSWER)
        except ssl.SSLCertVerificationError as error:
            why = f'cannot verify the certificate of "{self.url.netloc}": {error.verify_message}'
            raise ProxmoxError(f"{why}; name its authority with --ca-file") from error
        except (OSError, HTTPException) as error:
            why = str(error) or type(error).__name__
            raise PassingError(f'no answer from "{self.url.netloc}": {why}') from error
        finally:
            connection.close()
        return _read_answer(answer.status, answer.reason, content)

    def _connect(self) -> HTTPConnection:
        host, port, seconds = self.url.hostname or "", self.url.port, self.request_seconds
        if self.url.scheme == "https":
            return HTTPSConnection(host, port, timeout=seconds, context=self.context)
        return HTTPConnection(host, port, timeout=seconds)


def _read_answer(status: int, reason: str, content: bytes) -> Any:
    try:
        answer = json.loads(content)
    except ValueError:
        answer = None
    known = answer if isinstance(answer, dict) else {}
    if status == 200 and "data" in known:
        return known["data"]
    # Older releases give the reason in the status line only.
    said = "no JSON data" if status == 200 else str(known.get("message") or reason).strip()
    details = "".join(f"; {key}: {why}" for key, why in (known.get("errors") or {}).items())
    message = f"Proxmox VE answers {status}: {said}{details}"
    if status in _PASSING:
        raise PassingError(message)
    hints = {401: "; check the token", 403: "; check the permissions of the token"}
    raise RefusedError(message + hints.get(status, ""))


@dataclass(frozen=True, slots=True, kw_only=True)
class Guest:
    """A virtual machine on the node where it was last seen."""

    vmid: int
    name: str
    node: str
    memory: int

    @property
    def path(self) -> str:
        return f"/nodes/{self.node}/qemu/{self.vmid}"


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestState:
    """What QEMU says about a guest; *process* tells one run of it from the next."""

    is_running: bool
    is_paused: bool
    process: int


def list_guests(session: Session) -> list[Guest]:
    """Return the virtual machines of the cluster that the token may see, without templates."""
    return [
        Guest(
            vmid=int(entry["vmid"]),
            name=str(entry.get("name") or f"vm-{entry['vmid']}"),
            node=str(entry["node"]),
            memory=int(entry.get("maxmem", 0)),
        )
        for entry in session.get("/cluster/resources", type="vm")
        if entry.get("type") == "qemu" and not entry.get("template")
    ]


def find_guest(session: Session, name: str) -> Guest:
    """Return the only guest of that *name*, in any case."""
    found = [each for each in list_guests(session) if each.name.casefold() == name.casefold()]
    if not found:
        raise ProxmoxError(f'no virtual machine is named "{name}", or the token lacks VM.Audit')
    if len(found) > 1:
        ids = ", ".join(str(each.vmid) for each in found)
        raise ProxmoxError(
            f'several virtual machines are named "{name}": {ids}; rename all but one'
        )
    return found[0]


def look_at(session: Session, guest: Guest) -> GuestState:
    """Return the state of *guest* now."""
    status = session.get(f"{guest.path}/status/current")
    return GuestState(
        is_running=status.get("status") == "running",
        is_paused=status.get("qmpstatus") == "paused",
        process=int(status.get("pid") or 0),
    )


def resume(session: Session, guest: Guest) -> None:
    """Let a paused guest run."""
    session.run_task(f"{guest.path}/status/resume")
    wait_for(session, guest, lambda state: not state.is_paused, "run again")


def start(session: Session, guest: Guest) -> None:
    """Start a stopped guest."""
    session.run_task(f"{guest.path}/status/start")
    # The task of a guest that HA manages only asks the HA manager.
    wait_for(session, guest, lambda state: state.is_running, "start")


def wait_for(
    session: Session, guest: Guest, is_so: Callable[[GuestState], bool], verb: str
) -> GuestState:
    """Wait until *guest* is as wanted; *verb* says what it is to do."""
    return session.wait(lambda: look_at(session, guest), is_so, f'"{guest.name}" to {verb}')


def list_nodes_in_maintenance(session: Session) -> set[str]:
    """Return the nodes that HA empties and keeps empty."""
    return {
        str(entry["node"])
        for entry in session.get("/cluster/ha/status/current")
        if entry.get("type") == "lrm" and "(maintenance mode" in str(entry.get("status"))
    }


def report(line: str) -> None:
    """Print progress at once: `forewarn event explain` shows the last line."""
    print(line, flush=True)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that every program of this folder has."""
    parser.add_argument("--url", required=True, help="any node, such as https://pve-1:8006")
    parser.add_argument("--token-file", type=Path, help=f"API token; default: ${TOKEN_VARIABLE}")
    parser.add_argument("--ca-file", type=Path, help="CA certificate of the cluster")
    parser.add_argument(
        "--request-timeout", type=float, default=30, metavar="SECONDS", help="default: 30"
    )
    parser.add_argument(
        "--wait",
        type=float,
        default=1800,
        metavar="SECONDS",
        help="timeout for each task; default: 1800",
    )
    parser.add_argument(
        "--pause", type=float, default=1, metavar="SECONDS", help="between checks; default: 1"
    )


def open_session(options: argparse.Namespace) -> Session:
    """Return the session that *options* describe; nothing is sent yet."""
    url = urlsplit(options.url.rstrip("/"))
    if url.scheme not in {"https", "http"} or not url.hostname:
        raise ProxmoxError(f'"{options.url}" is not a URL such as https://pve-1:8006')
    if url.scheme == "http" and not _is_loopback(url.hostname):
        raise ProxmoxError(f'"{options.url}" would send the token unencrypted; use https')
    try:
        context = ssl.create_default_context(cafile=options.ca_file)
    except OSError as error:
        raise ProxmoxError(f'cannot use the CA file "{options.ca_file}": {error}') from error
    return Session(
        url=url,
        token=_read_token(options.token_file),
        context=context,
        request_seconds=options.request_timeout,
        wait_seconds=options.wait,
        pause_seconds=options.pause,
    )


def run(main: Callable[[], str]) -> None:
    """Run *main*, print its last line, and exit with 1 and the reason if it fails."""
    try:
        report(main())
    except ProxmoxError as error:
        print(error, file=sys.stderr, flush=True)
        sys.exit(1)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        why = f"{type(error).__name__}: {error}"
        print(f"Proxmox VE sent an unexpected answer: {why}", file=sys.stderr, flush=True)
        sys.exit(1)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _read_token(path: Path | None) -> str:
    """Return USER@REALM!TOKENID=SECRET from the file, or from the environment."""
    if path is None:
        token = os.environ.get(TOKEN_VARIABLE, "")
    else:
        try:
            if path.stat().st_mode & 0o007:
                raise ProxmoxError(f'all users can read "{path}"; run: chmod o= {path}')
            token = path.read_text(encoding="utf-8")
        except OSError as error:
            raise ProxmoxError(f'cannot read the token file "{path}": {error.strerror}') from error
    token = token.strip()
    if not token.isprintable() or "!" not in token or "=" not in token:
        where = f'"{path}"' if path else f"${TOKEN_VARIABLE}"
        raise ProxmoxError(f"{where} has no token of the form USER@REALM!TOKENID=SECRET")
    return token
