"""Real servers for benchmarks: processes with ports of their own, that are asked over HTTP."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from http.client import HTTPConnection, HTTPException, HTTPResponse
from pathlib import Path
from typing import Any, Final

from local_ports import free_port

PROGRAM: Final = (sys.executable, "-c", "from forewarn.cli import main; main()")
API_VERSION: Final = "2020-07-01"
ANSWER_SECONDS: Final = 60.0
START_SECONDS: Final = 600.0


@dataclass(slots=True, kw_only=True)
class Server:
    """`forewarn serve` on *database*; connections to it are kept.

    *before* are words to start the command line with, like taskset and env. Each *replica* of a
    database has a state directory of its own in *folder*; the first has the folder itself.
    """

    folder: Path
    database: str
    flags: tuple[str, ...] = ("--trust-path",)
    before: tuple[str, ...] = ()
    metadata_port: int = field(default_factory=free_port)
    control_port: int = field(default_factory=free_port)
    replica: str = ""
    process: subprocess.Popen[bytes] | None = None
    _connections: dict[int, HTTPConnection] = field(default_factory=dict)

    def start(self) -> None:
        """Start, and do not wait."""
        where = {
            "--metadata": f"127.0.0.1:{self.metadata_port}",
            "--control": f"127.0.0.1:{self.control_port}",
            "--database": self.database,
            "--state-dir": str(self.folder / self.replica),
        }
        flags = [word for pair in where.items() for word in pair]
        with self._log.open("ab") as log:
            command = [*self.before, *PROGRAM, "serve", *flags, *self.flags]
            self.process = subprocess.Popen(command, stdout=log, stderr=log)  # noqa: S603

    def as_another(self) -> "Server":
        """Return the same server for another thread, which has connections of its own."""
        return replace(self, _connections={})

    def serves(self, vm: str) -> bool:
        """Tell whether *vm* is answered."""
        return self._answers(self.metadata_port, scheduled_events(vm))

    def hang_up(self) -> None:
        """Close the connections, which the server closes itself after seconds without a word."""
        for connection in self._connections.values():
            connection.close()

    def kill(self) -> None:
        """Kill -9."""
        self.hang_up()
        if self.process is not None:
            self.process.kill()
            self.process.wait(ANSWER_SECONDS)
            self.process = None

    def wait_for(self, path: str) -> float:
        """Return after how many seconds virtual machines are answered at *path*."""

        def is_there() -> bool:
            return self._answers(self.metadata_port, path)

        return wait_until(is_there, f"no answer to {path}", START_SECONDS, pause=0.05)

    def is_ready(self) -> bool:
        """Tell whether operators are answered."""
        return self._answers(self.control_port, "/readyz")

    def _answers(self, port: int, path: str) -> bool:
        if self.process is None or self.process.poll() is not None:
            raise SystemExit(self._log.read_text()[-2000:])
        try:
            return self._ask(port, "GET", path)[0].status == 200
        except (OSError, HTTPException):
            return False

    def poll(self, vm: str) -> dict[str, Any]:
        """Return the document that *vm* reads."""
        document: dict[str, Any] = json.loads(self.read(vm))
        return document

    def read(self, vm: str) -> bytes:
        """Return the bytes that *vm* reads."""
        return self._succeed(self.metadata_port, "GET", scheduled_events(vm))

    def etag(self, vm: str) -> str:
        """Return by what the document of *vm* is known."""
        answer, _ = self._ask(self.metadata_port, "GET", scheduled_events(vm))
        return answer.headers["ETag"]

    def wait_for_change(self, vm: str, etag: str) -> None:
        """Return when *vm* is shown another document than that of *etag*."""
        wanted = {"If-None-Match": etag, "Prefer": f"wait={ANSWER_SECONDS / 2:.0f}"}
        answer, _ = self._ask(self.metadata_port, "GET", scheduled_events(vm), headers=wanted)
        if answer.status != 200:
            raise SystemExit(f"{vm} was shown nothing new: {answer.status}")

    def approve(self, vm: str, event_id: str) -> None:
        """Have *vm* ask for the start of an event."""
        order = {"StartRequests": [{"EventId": event_id}]}
        self._succeed(self.metadata_port, "POST", scheduled_events(vm), order)

    def operate(self, method: str, path: str, body: object = None) -> Any:
        """Ask the control API; return what it answers."""
        return json.loads(self._succeed(self.control_port, method, f"/api/v1/{path}", body))

    def create(self, event_type: str, vm: str, **more: object) -> str:
        """Announce an event, and return its id."""
        order = {"event_type": event_type, "resources": [vm], **more}
        event_id: str = self.operate("POST", "events", order)["events"][0]["event_id"]
        return event_id

    @property
    def _log(self) -> Path:
        return self.folder / f"log-{self.metadata_port}"

    @property
    def pid(self) -> int:
        """Its process."""
        if self.process is None:
            raise ValueError(self.process)
        return self.process.pid

    def resident_bytes(self) -> int:
        """Return how much memory it has."""
        return resident_bytes(self.pid)

    def cpu_seconds(self) -> float:
        """Return how long it has kept a core busy."""
        return cpu_seconds(self.pid)

    def _succeed(self, port: int, method: str, path: str, body: object = None) -> bytes:
        answer, content = self._ask(port, method, path, body)
        if answer.status not in {200, 201}:
            raise SystemExit(f"{method} {path}: {answer.status} {content[:1000].decode()}")
        return content

    def _ask(
        self,
        port: int,
        method: str,
        path: str,
        body: object = None,
        headers: Mapping[str, str] | None = None,
    ) -> tuple[HTTPResponse, bytes]:
        connection = self._connections.setdefault(
            port, HTTPConnection("127.0.0.1", port, timeout=ANSWER_SECONDS)
        )
        sent = None if body is None else json.dumps(body).encode()
        common = {"Metadata": "true", "Content-Type": "application/json"}
        if path.startswith("/api/"):
            token = (self.folder / "admin.token").read_text().strip()
            common["Authorization"] = f"Bearer {token}"
        try:
            connection.request(method, path, sent, {**common, **(headers or {})})
            answer = connection.getresponse()
            return answer, answer.read()
        except BaseException:
            connection.close()
            raise


def replicas_in(folder: Path, database: str, number: int) -> list[Server]:
    """Return that many replicas on one database; the first makes the admin token of all."""
    names = ("", *(f"replica-{each}" for each in range(1, number)))
    return [Server(folder=folder, database=database, replica=name) for name in names]


@contextmanager
def running(*servers: Server) -> Iterator[None]:
    """Run *servers* while the block runs."""
    with ExitStack() as stack:
        for server in servers:
            (server.folder / server.replica).mkdir(parents=True, exist_ok=True)
            stack.callback(server.kill)
            server.start()
        yield


def cpu_seconds(*pids: int) -> float:
    """Return how long the threads of processes have kept a core busy; not only when it ticked."""
    threads = (each for pid in pids for each in Path(f"/proc/{pid}/task").glob("*/schedstat"))
    return sum(int(each.read_text().split()[0]) for each in threads) / 1e9


def children_of(pid: int) -> tuple[int, ...]:
    """Return the processes that *pid* has started and that have not ended."""
    threads = Path(f"/proc/{pid}/task").glob("*/children")
    return tuple(int(child) for each in threads for child in each.read_text().split())


def resident_bytes(pid: int) -> int:
    """Return how much memory a process has."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS:"))


def scheduled_events(vm: str) -> str:
    """Return where *vm* reads its document."""
    return f"/vm/{vm}/metadata/scheduledevents?api-version={API_VERSION}"


def wait_until(
    is_so: Callable[[], bool], reason: str, seconds: float, *, pause: float = 0.0005
) -> float:
    """Return after how many seconds *is_so*, or give up."""
    began = time.perf_counter()
    while not is_so():
        if time.perf_counter() - began > seconds:
            raise SystemExit(f"{reason}, after {seconds:.0f} seconds")
        time.sleep(pause)
    return time.perf_counter() - began
