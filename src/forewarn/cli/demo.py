"""`forewarn demo`: a real server, a restart and a Maintenance, from Scheduled to gone."""

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import httpx2
import typer

from forewarn.cli.errors import CommandError, ExitCode, reported_errors
from forewarn.settings import ADMIN_TOKEN_FILE

_READY_WITHIN: Final = 60.0
_VERSIONS: Final = ("2017-03-01", "2020-07-01")
_FLEET: Final = '[[availability_set]]\nname = "web"\nupdate_domains = 3\n' + "".join(
    f'\n[[virtual_machine]]\nname = "web-{i}"\navailability_set = "web"\n' for i in range(6)
)


def demo() -> None:
    """Start a server in a temporary folder, restart a VM, and walk a Maintenance.

    Time is virtual: an hour passes in a blink. Nothing is left behind.

    Example: forewarn demo
    """
    with reported_errors(), TemporaryDirectory(prefix="forewarn-demo-") as folder:
        typer.echo("A server on SQLite with six virtual machines, on the virtual clock.\n")
        with _server(Path(folder)) as server:
            _restart(server)
            _walk(server)
        typer.echo("\nDone. Your turn: forewarn serve --help")


@dataclass(frozen=True, slots=True)
class _Server:
    """A server that was started for the demo, and how to talk to it from both sides."""

    metadata: str
    control: httpx2.Client
    polls: httpx2.Client

    def type_command(self, command: str, path: str, body: object = None) -> Any:
        """Do over the control API what *command* does, and show the command."""
        typer.echo(f"$ forewarn {command}")
        answer = self.control.post(path, json=body)
        answer.raise_for_status()
        return answer.json()

    def poll(self, vm: str, version: str) -> None:
        """Read the document as *vm* does, and show both."""
        url = f"{self.metadata}/vm/{vm}/metadata/scheduledevents?api-version={version}"
        typer.echo(f"$ curl -H Metadata:true '{url}'")
        typer.echo(self.polls.get(url, headers={"Metadata": "true"}).text)

    def approve(self, vm: str, event_id: str) -> None:
        """Request the start of an event as *vm* does."""
        url = f"{self.metadata}/vm/{vm}/metadata/scheduledevents?api-version=2020-07-01"
        body = f'{{"StartRequests":[{{"EventId":"{event_id}"}}]}}'
        typer.echo(f"$ curl -H Metadata:true -d '{body}' '{url}'")
        self.polls.post(url, headers={"Metadata": "true"}, content=body).raise_for_status()

    def events(self) -> list[dict[str, Any]]:
        """Return every event there is or was, oldest first."""
        answer = self.control.get("/api/v1/events")
        answer.raise_for_status()
        listed: list[dict[str, Any]] = answer.json()["events"]
        return sorted(listed, key=lambda event: (event["created_at"], event["update_domain"]))


def _restart(server: _Server) -> None:
    event = server.type_command("vm restart web-0", "/api/v1/virtual-machines/web-0/restart")
    for version in _VERSIONS:
        server.poll("web-1", version)
    server.approve("web-0", event["event_id"])
    server.poll("web-1", _VERSIONS[-1])
    server.type_command("clock advance 10m", "/api/v1/clock/advance", {"duration": "10m"})
    server.poll("web-1", _VERSIONS[-1])


def _walk(server: _Server) -> None:
    typer.echo()
    known = {event["event_id"]: event["event_status"] for event in server.events()}
    order = {"event_type": "Freeze", "scopes": ["web"]}
    server.type_command(
        "maintenance start --type Freeze --scope web", "/api/v1/maintenances", order
    )
    while True:
        for event in server.events():
            if known.get(event["event_id"]) != event["event_status"]:
                known[event["event_id"]] = event["event_status"]
                vms = ", ".join(event["resources"])
                typer.echo(
                    f"  update domain {event['update_domain']}: {event['event_status']:<9} {vms}"
                )
        if all(status in {"Completed", "Canceled"} for status in known.values()):
            break
        server.type_command("clock advance 5m", "/api/v1/clock/advance", {"duration": "5m"})


@contextmanager
def _server(folder: Path) -> Iterator[_Server]:
    (folder / "fleet.toml").write_text(_FLEET, encoding="utf-8")
    metadata, control = (f"127.0.0.1:{_port(wanted)}" for wanted in (8169, 8170))
    flags = {
        "--database": f"sqlite:///{folder / 'forewarn.db'}",
        "--fleet": str(folder / "fleet.toml"),
        "--metadata": metadata,
        "--control": control,
        "--clock": "virtual",
        "--executor": "simulated",
    }
    entry = "from forewarn.cli import main; main()"
    words = [word for flag in flags.items() for word in flag]
    command = [sys.executable, "-c", entry, "serve", *words]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:  # noqa: S603
        try:
            with httpx2.Client(base_url=f"http://{control}", trust_env=False, timeout=30) as client:
                _wait_until_ready(process, client)
                token = (folder / ADMIN_TOKEN_FILE).read_text(encoding="ascii").strip()
                client.headers["Authorization"] = f"Bearer {token}"
                with httpx2.Client(trust_env=False, timeout=30) as polls:
                    yield _Server(f"http://{metadata}", client, polls)
        finally:
            process.send_signal(signal.SIGTERM)


def _wait_until_ready(process: subprocess.Popen[str], client: httpx2.Client) -> None:
    deadline = time.monotonic() + _READY_WITHIN
    while time.monotonic() < deadline and process.poll() is None:
        try:
            if client.get("/readyz").is_success:
                return
        except httpx2.TransportError:
            time.sleep(0.05)
    process.kill()
    said = process.stderr.read() if process.stderr else ""
    raise CommandError(
        f"The server did not start: {said.strip() or 'no word from it'}", code=ExitCode.FAILED
    )


def _port(wanted: int) -> int:
    """Return *wanted*, or any free port if somebody has it."""
    for port in (wanted, 0):
        try:
            with socket.create_server(("127.0.0.1", port)) as probe:
                return int(probe.getsockname()[1])
        except OSError:
            continue
    raise CommandError("There is no free port on 127.0.0.1.", code=ExitCode.FAILED)
