"""A virtual machine with a real agent: a process with its own hooks, that can be killed."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

from tests.e2e.conftest import ANSWER_SECONDS, STOP_SECONDS, wait_until

AGENT = Path(sys.executable).with_name("forewarn-agent")
PHASES = ("scheduled", "started", "recovered", "canceled", "notify")
WHOLE_LIFE = [
    "begin scheduled",
    "end scheduled",
    "begin started",
    "end started",
    "begin recovered",
    "end recovered",
]

# It writes down that it begins and ends, and in between waits as long as it is held.
HOOK = """#!/bin/sh
name=$(basename "$0")
echo "begin $EVENT_PHASE $name $EVENT_ID" >> {folder}/journal
while [ -e {folder}/hold-$EVENT_PHASE ]; do sleep 0.05; done
status=$(cat {folder}/status-$EVENT_PHASE 2> /dev/null || echo 0)
echo "end $EVENT_PHASE $name $EVENT_ID" >> {folder}/journal
exit $status
"""


@dataclass(slots=True, kw_only=True)
class Machine:
    """The agent of one virtual machine, and what its hooks have written down."""

    name: str
    folder: Path
    endpoint: str
    environment: Mapping[str, str]
    settings: dict[str, str] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None

    def __post_init__(self) -> None:
        for phase in PHASES:
            self.write_hook(phase, "10-note", HOOK.format(folder=self.folder))
        self.configure(approval="when-ready", ask_again="1s")

    def write_hook(self, phase: str, name: str, text: str) -> None:
        path = self.folder / "hooks.d" / f"{phase}.d" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)

    def configure(self, **settings: str) -> None:
        """Write the configuration, with *settings* added to those there were."""
        self.settings |= settings
        lines = [f'{key} = "{value}"' for key, value in self.settings.items()]
        lines += [f'endpoint = "{self.endpoint}"', f'state_dir = "{self.folder}/state"']
        self.file.write_text("\n".join(lines), encoding="utf-8")

    @property
    def file(self) -> Path:
        return self.folder / "agent.toml"

    def start(self, *flags: str) -> None:
        """Start the agent, and return when it knows who it is."""
        runs = self.said().count("agent_runs")
        with (self.folder / "log").open("ab") as log:
            command = [str(AGENT), "run", "--config", str(self.file), *flags]
            self.process = subprocess.Popen(
                command, stdout=log, stderr=log, env=dict(self.environment)
            )
        self.wait_for_log("agent_runs", runs + 1)

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run another verb of the agent to its end."""
        return subprocess.run(
            [AGENT, *arguments, "--config", self.file],
            env=dict(self.environment),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def kill(self) -> None:
        """Kill -9; hooks go on, as they do."""
        if self.process is not None:
            self.process.kill()
            self.process.wait(STOP_SECONDS)
            self.process = None

    def stop(self) -> int:
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(STOP_SECONDS)
        self.process = None
        return status

    def cut_power(self) -> None:
        """Kill -9 the agent and every hook."""
        self.kill()
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                is_ours = str(self.folder / "hooks.d").encode() in (folder / "cmdline").read_bytes()
            except OSError:
                continue
            if is_ours:
                os.kill(int(folder.name), signal.SIGKILL)

    def hold(self, phase: str) -> None:
        (self.folder / f"hold-{phase}").touch()

    def release(self, phase: str) -> None:
        (self.folder / f"hold-{phase}").unlink()

    def answer(self, phase: str, status: int) -> None:
        """Let the hooks of *phase* end with *status* from now on."""
        (self.folder / f"status-{phase}").write_text(str(status), encoding="ascii")

    @property
    def journal(self) -> list[str]:
        """What hooks have begun and ended, as `begin scheduled 10-note EVENTID`."""
        try:
            return (self.folder / "journal").read_text(encoding="ascii").splitlines()
        except FileNotFoundError:
            return []

    @property
    def phases(self) -> list[str]:
        """What has begun and ended, without the names."""
        return [" ".join(line.split()[:2]) for line in self.journal]

    def said(self) -> str:
        try:
            return (self.folder / "log").read_text(encoding="utf-8")
        except FileNotFoundError:
            return ""

    def wait_for_log(self, text: str, times: int = 1) -> None:
        """Return when the agent has said *text*."""
        wait_until(
            lambda: self.said().count(text) >= times,
            f"{self.name} has not said {text!r}: {self.said()}",
            ANSWER_SECONDS,
        )

    def wait_for_phase(self, what: str, times: int = 1) -> None:
        """Return when hooks have written *what*, like `end recovered`."""
        wait_until(
            lambda: self.phases.count(what) >= times,
            f"{self.name} has not come to {what!r}: {self.said()}",
            ANSWER_SECONDS,
        )

    def wait_for_state(self, phase: str) -> None:
        """Return when it is on disk that the hook of *phase* is ready."""
        file = self.folder / "state" / "state.json"

        def is_ready() -> bool:
            cases = json.loads(file.read_bytes())["cases"] if file.exists() else []
            return any(case["outcomes"].get(phase) == {"10-note": "ready"} for case in cases)

        wait_until(is_ready, f"{self.name} has not kept that {phase} is ready", ANSWER_SECONDS)

    def wait_until_closed(self) -> None:
        """Return when the agent has nothing left to do."""
        self.wait_for_log("event_closed")


def ask(port: int, path: str) -> tuple[int, str]:
    """Ask an agent that listens on *port* how it is."""
    try:
        with urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as error:
        with error:
            return error.code, error.read().decode()
