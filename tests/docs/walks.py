"""A reader who does all that a page says, in a folder and a shell of their own.

Files are saved under the names in their first lines, and commands are run in one shell after the
other. Addresses are replaced by free ports, and /etc and /var by folders. What needs a whole
machine has a stand-in (stand_ins/), which really starts and stops our servers.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Final

from tests.docs.blocks import ROOT, Block, read_commands
from tests.e2e.conftest import wait_until
from tests.e2e.test_detach import READY, stop
from tests.ports import free_port
from tests.receiver import Receiver

SECONDS: Final = 120
FLEET: Final = ROOT / "examples" / "testing" / "fleet.toml"
"""What readers have already, unless the page has another."""
OUR_PLUGINS: Final = frozenset({"forewarn", "xdist"})
WITHOUT_OTHERS: Final = " ".join(
    f"-p no:{plugin.name}"
    for plugin in entry_points(group="pytest11")
    if plugin.name not in OUR_PLUGINS
)
"""Plugins of pytest that readers do not have, and that take half of the time of a start."""
STAND_INS: Final = Path(__file__).with_name("stand_ins")
UNTIL_STOPPED: Final = ("forewarn-agent run", "forewarn event watch", "journalctl --follow")
"""Commands that a reader leaves running, until the same program is started again or to the end."""
MAY_FAIL: Final = ("pytest ",)
"""Commands that a page may show failing."""
_ID: Final = re.compile(r"[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}")
_VOLATILE: Final = {
    _ID.pattern: "ID",
    r"\bfw_[\w…-]+": "SECRET",
    r"\d{4}-\d\d-\d\d[ T]": "",
    r"\d\d:\d\d:\d\d(?:Z|[.,]\d+|\+00:00| GMT)*": "TIME",
    r"\w{3}, \d\d \w{3} \d{4} ": "",
    r"\b\d+(?:\.\d+)? ?(?:s|seconds)\b": "DURATION",
    r"\b(?:process|kill) \d+": "PID",
    r"127\.0\.0\.1:\d+": "ADDRESS",
    r"\b\d+ POSTs": "POSTS",
    r"[ =_-]{2,}": " ",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A command that was left running, and what its page shows of it."""

    program: str
    process: subprocess.Popen[bytes]
    log: Path
    block: Block
    shown: list[str]

    def compare(self) -> None:
        """Compare what it prints with what the page shows."""
        place = self.block.place
        wait_until(
            lambda: self.log.stat().st_size > 0 and is_shown(self.shown, self.log.read_text()),
            f"{place}: {self.shown} is not in {self.log}",
            SECONDS,
            pause=0.1,
        )
        assert self.process.poll() is None, f"{place}: it has ended: {self.log.read_text()}"

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


class Walk:
    """A page that is being followed."""

    def __init__(self, folder: Path, receiver: Receiver) -> None:
        self._root = folder
        self._home = folder / "home"
        self._home.mkdir()
        shutil.copy(FLEET, self._home)
        for name in ("contrib", "examples"):  # what readers have in a checkout
            (self._home / name).symlink_to(ROOT / name)
        self._metadata, self._control, self._agent = free_port(), free_port(), free_port()
        self._variables = {
            "HOME": str(self._home),
            "PATH": f"{STAND_INS}:{Path(sys.executable).parent}:{os.defpath}:/usr/sbin:/sbin",
            "LANG": "C.UTF-8",
            "PYTEST_ADDOPTS": f"{WITHOUT_OTHERS} -W error",
            "STAND_IN_ROOT": str(folder),
            "STAND_IN_CHECKOUT": str(ROOT),
            "FOREWARN_METADATA": f"127.0.0.1:{self._metadata}",
            "FOREWARN_CONTROL": f"127.0.0.1:{self._control}",
        }
        self._servers: list[int] = []
        self._running: list[Running] = []
        self._receiver = receiver
        self._last_id = "ID"

    def follow(self, block: Block) -> None:
        """Do what a reader does with *block*."""
        if block.file is not None:
            self._save(block.file, block.text)
        elif block.language == "console":
            for command, shown in read_commands(block.text):
                self._type(command, shown, block)
        elif block.language == "sh":
            self._run(f"set -e\n{block.text}", block)
        else:
            raise AssertionError(
                f"{block.place}: name the file that this is, or the test that runs it"
            )

    def finish(self) -> None:
        """Compare what is still running with what the page shows of it."""
        for each in self._running:
            each.compare()

    def stop(self) -> None:
        """End all that was started."""
        for each in self._running:
            each.kill()
        pids = self._root / "pids"
        started = [int(path.read_text()) for path in pids.glob("*")] if pids.exists() else []
        for pid in (*self._servers, *started):
            stop(pid)

    def _save(self, name: str, text: str) -> None:
        path = self._place(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self._here(text), encoding="utf-8")
        path.chmod(0o600)

    def _place(self, name: str) -> Path:
        where = self._root / "cwd"
        folder = Path(where.read_text().strip()) if where.exists() else self._home
        return folder / self._here(name)

    def _type(self, command: str, shown: list[str], block: Block) -> None:
        command = re.sub(r"\bID\b", self._last_id, command)
        if command.startswith(UNTIL_STOPPED):
            self._leave_running(command, shown, block)
            return
        if command.startswith("forewarn serve") and "--detach" not in command:
            command += " --detach"
        done = self._run(command, block, may_fail=command.startswith(MAY_FAIL))
        if ids := _ID.findall(done):
            self._last_id = ids[0]
        assert is_shown(shown, done), f"{block.place}: {command} printed:\n{done}"

    def _run(self, commands: str, block: Block, *, may_fail: bool = False) -> str:
        """Run *commands* where the ones before have left off, and return what they print."""
        script = (
            f"[ ! -e {self._root}/env ] || . {self._root}/env; "
            f'[ ! -e {self._root}/cwd ] || cd "$(cat {self._root}/cwd)"\n'
            f"trap 'pwd > {self._root}/cwd; export -p > {self._root}/env' EXIT\n"
            f"{self._here(commands)}\n"
        )
        with (self._root / "printed").open("w+") as printed:
            # Not a pipe, which a server in the background would keep open.
            code = subprocess.run(
                ["/bin/sh", "-c", script],
                cwd=self._home,
                env=self._variables,
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=subprocess.STDOUT,
                timeout=SECONDS,
                check=False,
            ).returncode
            printed.seek(0)
            text = printed.read()
        self._servers += [int(pid) for pid, _ in READY.findall(text)]
        assert may_fail or code == 0, f"{block.place}: {commands} ended with {code}:\n{text}"
        return text

    def _leave_running(self, command: str, shown: list[str], block: Block) -> None:
        program = command.split(maxsplit=1)[0]
        for before in [each for each in self._running if each.program == program]:
            before.compare()
            before.kill()
            self._running.remove(before)
        log = self._root / f"{program}-{block.line}.log"
        with log.open("wb") as printed:
            process = subprocess.Popen(
                shlex.split(self._here(command)),
                cwd=self._place("."),
                env=self._variables,
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=subprocess.STDOUT,
            )
        running = Running(program=program, process=process, log=log, block=block, shown=shown)
        self._running.append(running)

    def _here(self, text: str) -> str:
        """Return *text* with the addresses and folders of this walk."""
        metadata, control = f"127.0.0.1:{self._metadata}", f"127.0.0.1:{self._control}"
        text = re.sub(r"(127\.0\.0\.1|0\.0\.0\.0):8169|169\.254\.169\.254:80\b", metadata, text)
        text = text.replace("--speed 60", "--speed 180")  # tests have less patience than readers
        text = text.replace("10.0.0.5", "127.0.0.1").replace("127.0.0.1:8170", control)
        text = text.replace("127.0.0.1:9169", f"127.0.0.1:{self._agent}")
        text = text.replace("https://hooks.example.org", self._receiver.url)
        return re.sub(r"(?<![\w.])/(etc|var)/", rf"{self._root}/\1/", text)


@contextmanager
def walking(folder: Path) -> Iterator[Walk]:
    """Give a walk in *folder*, of which nothing is left running."""
    for name in ("etc/systemd/system", "etc/forewarn", "var/backups", "var/lib/forewarn"):
        (folder / name).mkdir(parents=True)
    receiver = Receiver()
    walk = Walk(folder, receiver)
    with receiver.listening():
        try:
            yield walk
            walk.finish()
        finally:
            walk.stop()


def is_shown(shown: list[str], printed: str) -> bool:
    """Return whether every line of *shown* was printed in this order; `...` stands for any."""
    lines = iter([_timeless(line) for line in printed.splitlines()])
    return all(line in {"...", ""} or _timeless(line) in lines for line in shown)


def _timeless(line: str) -> str:
    """Return *line* without what differs from run to run."""
    for pattern, word in _VOLATILE.items():
        line = re.sub(pattern, word, line)
    return line.strip()
