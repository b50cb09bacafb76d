"""What the agent costs: memory and CPU at one poll a second, and the CPU of `once`.

The server is as plain as Azure's, so that it is really polled once a second. Beside it: what Python
takes to import http.client and json, and a loop of curl and jq.
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final

from servers import cpu_seconds
from smoke import new_parser, run, sized, skip_without

AGENT: Final = str(Path(sys.executable).with_name("forewarn-agent"))
BARE: Final = (sys.executable, "-c", "import http.client, json")
RUNS: Final = sized(25, smoke=1)
SECONDS: Final = sized(30, smoke=1)
MEMORY_TARGET: Final = 28.0
CPU_TARGET: Final = 0.3
ONCE_TARGET: Final = 2.5
WARM_UP_SECONDS: Final = sized(3.0, smoke=0.5)
_TICKS: Final = os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Print the figures beside their targets."""
    parser = new_parser(__doc__)
    parser.add_argument(
        "--seconds", type=int, default=SECONDS, help="how long to watch each poller"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, _metadata() as endpoint:
        file = Path(folder) / "agent.toml"
        file.write_text(
            f'endpoint = "{endpoint}"\nname = "web-0"\nstate_dir = "{folder}"\n'
            'approval = "when-ready"\nlisten = "127.0.0.1:0"\n'
        )
        memory, cpu = _watch((AGENT, "run", "--config", str(file)), options.seconds)
        print(
            f"agent at one poll a second: {memory:.1f} MiB resident (target {MEMORY_TARGET:.0f}), "
            f"{cpu:.2f} % of a core (target {CPU_TARGET})"
        )
        _compare_with_curl(endpoint, options.seconds)
        _compare_once((AGENT, "once", "--config", str(file)))


def _compare_with_curl(endpoint: str, seconds: int) -> None:
    if missing := [name for name in ("curl", "jq") if shutil.which(name) is None]:
        skip_without(*missing)
        return
    url = f"{endpoint}/metadata/scheduledevents?api-version=2020-07-01"
    loop = f"while :; do curl -s -H Metadata:true '{url}' | jq -c .Events; sleep 1; done"
    memory, cpu = _watch(("sh", "-c", loop), seconds)
    print(
        f"a loop of curl and jq:      {memory:.1f} MiB resident in its shell while it sleeps, "
        f"{cpu:.2f} % of a core"
    )


def _compare_once(once: Sequence[str]) -> None:
    pairs = [(_cpu_of(BARE), _cpu_of(once)) for _ in range(RUNS)]
    bare, agent = (statistics.median(times) * 1000 for times in zip(*pairs, strict=True))
    print(
        f"once: {agent:.0f} ms of CPU, Python that imports http.client and json {bare:.0f} ms: "
        f"{agent / bare:.2f} times as much (target {ONCE_TARGET})"
    )


def _cpu_of(command: Sequence[str]) -> float:
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)  # noqa: S603
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{command} has failed")
    return usage.ru_utime + usage.ru_stime


def _watch(command: Sequence[str], seconds: int) -> tuple[float, float]:
    """Return how many MiB *command* takes, and how many hundredths of a core with its children."""
    quiet = subprocess.DEVNULL
    with subprocess.Popen(command, stdout=quiet, stderr=quiet) as process:  # noqa: S603
        time.sleep(WARM_UP_SECONDS)
        before = _cpu_seconds(process.pid)
        time.sleep(seconds)
        used = _cpu_seconds(process.pid) - before
        memory = _resident(process.pid)
        process.kill()
    return memory, used / seconds * 100


def _cpu_seconds(pid: int) -> float:
    """Return what the threads of a process have used, and its children that have ended."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return cpu_seconds(pid) + (int(fields[13]) + int(fields[14])) / _TICKS


def _resident(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise SystemExit(f"process {pid} has no memory")


@contextmanager
def _metadata() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        body = json.dumps({"DocumentIncarnation": 1, "Events": []}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


if __name__ == "__main__":
    run(main)
