"""A tutorial, gone through as by its reader: on a host with libvirt, and in guests that run Debian.

Nothing of the page is repeated here. The host is the one of a data centre of the lab, seen from
inside, so that `qemu:///system` is its libvirt.
"""

import os
import re
import select
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest
from tests.e2e.relays import METADATA, HostPlace, add_namespace
from tests.lab.hypervisors import KvmHost, run_hypervisor
from tests.lab.large_guests import (
    COMMAND_SECONDS,
    DONE,
    PRINT_STATUS,
    LargeGuest,
    run_guests,
    run_inside,
)
from tests.lab.small_guests import BootFiles
from tests.lab.tutorials import Saved, Typed, compare, read_tutorial, say_with
from tests.wheels import ROOT

PAGE: Final = ROOT / "docs/tutorials/an-afternoon-with-a-kvm-host.md"
UNIT: Final = ROOT / "contrib" / "systemd" / "forewarn-agent.service"
GUESTS: Final = (LargeGuest(name="web-1", number=11), LargeGuest(name="web-2", number=12))
TYPED_SECONDS: Final = 600.0
LOOK_SECONDS: Final = 600.0
"""How long a reader looks again and again until the page is right."""
LOOK: Final = re.compile(
    r"cat|ls|systemctl is-active|virsh domstate|curl (?!.* -d )"
    r"|forewarn \w+ (explain|history|list|show|status)"
)
"""Commands that change nothing, so that a reader may repeat them."""
GLANCE_SECONDS: Final = 60.0
"""How long one look may take: a command is not heard of again if its guest goes down."""
# The disk of the lab has the agent already, for other tests, with hooks that need a second console.
PREPARE: Final = """
rm -r /etc/forewarn /opt/forewarn/lib/python3*/site-packages/forewarn*
printf '[global]\\nno-index = true\\nfind-links = /root\\n' > /etc/pip.conf
systemctl start app
"""


@dataclass(slots=True)
class Terminal:
    """A shell of root on a host."""

    process: "subprocess.Popen[bytes]"
    screen: int

    def type(self, command: str) -> tuple[int, str]:
        """Run *command*; return its status and what it prints on a screen."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{command}\n{PRINT_STATUS}\n".encode())
        self.process.stdin.flush()
        printed, deadline = b"", time.monotonic() + TYPED_SECONDS
        while (done := DONE.search(printed.decode(errors="replace"))) is None:
            left = max(0.0, deadline - time.monotonic())
            ready, _, _ = select.select([self.screen], [], [], left)
            assert ready, f"not done in {TYPED_SECONDS} s: {command}: {printed!r}"
            printed += os.read(self.screen, 65536)
        return int(done[1]), done.string[: done.start()].replace("\r", "")


@contextmanager
def open_terminal(hypervisor: KvmHost, home: Path, wheels: Path) -> Generator[Terminal]:
    """Log in on a host, whose pip finds packages in *wheels*."""
    assert hypervisor.daemon is not None
    spaces = ["nsenter", "--mount", "--uts", "--net", f"--target={hypervisor.daemon.pid}"]
    python = Path(sys.base_prefix, "bin")
    screen, end = os.openpty()
    with subprocess.Popen(
        [*spaces, "/bin/bash", "--noprofile", "--norc"],
        env={
            "HOME": str(home),
            "PATH": f"{python}:/usr/sbin:/usr/bin:/sbin:/bin",
            "COLUMNS": "240",
            "LANG": "C.UTF-8",
            "TERM": "dumb",
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": str(wheels),
        },
        stdin=subprocess.PIPE,
        stdout=end,
        stderr=end,
    ) as process:
        os.close(end)
        terminal = Terminal(process, screen)
        try:
            terminal.type("cd")
            yield terminal
        finally:
            process.kill()
            os.close(screen)


@dataclass(slots=True, kw_only=True)
class Reader:
    """Does what a page says, and compares what it shows."""

    hypervisor: KvmHost
    terminal: Terminal
    home: Path
    ids: dict[str, str] = field(default_factory=dict)

    def do(self, step: Typed | Saved) -> None:
        match step:
            case Saved():
                self._save(step)
            case Typed() if LOOK.match(step.command):
                self._look(step)
            case Typed():
                status, printed = self._type(step)
                assert status == 0, f"{step.command}: {status}: {printed}"
                self.ids = compare(step.shown, printed, self.ids)

    def _look(self, step: Typed) -> None:
        """Look until it is as shown."""
        deadline = time.monotonic() + LOOK_SECONDS
        while True:
            try:
                _, printed = self._type(step, GLANCE_SECONDS)
                self.ids = compare(step.shown, printed, self.ids)
            except (AssertionError, subprocess.TimeoutExpired):
                # A guest that reboots says nothing, or only the half.
                if time.monotonic() > deadline:
                    raise
                time.sleep(1)
            else:
                return

    def _type(self, step: Typed, seconds: float = COMMAND_SECONDS) -> tuple[int, str]:
        command = say_with(self.ids, step.command)
        if step.machine == self.hypervisor.name:
            return self.terminal.type(command)
        return run_inside(self.hypervisor, step.machine, command, seconds)

    def _save(self, step: Saved) -> None:
        if step.machine == self.hypervisor.name:
            (self.home / step.path).write_text(step.text, encoding="utf-8")
        else:
            save_inside(self.hypervisor, step.machine, step.path, step.text)


def save_inside(hypervisor: KvmHost, vm: str, path: str, text: str) -> None:
    save = f"mkdir -p $(dirname {path}) && cat > {path} <<'END'\n{text}END"
    status, said = run_inside(hypervisor, vm, save)
    assert status == 0, said


@pytest.fixture
def hypervisor(
    tmp_path_factory: pytest.TempPathFactory, boot_files: BootFiles, disk: Path
) -> Generator[KvmHost]:
    """A host with two guests, in one of which a service runs and the unit of the agent is."""
    # The path of a socket may have 107 characters, so not in the folder of the test.
    folder = tmp_path_factory.mktemp("host")
    with ExitStack() as stack:
        name = add_namespace(stack, "kvm-1")
        place = HostPlace(name=name, number=1, folder=folder, environment={"PATH": os.defpath})
        running = run_hypervisor(place, folder / "libvirt", boot_files.cache, {})
        hypervisor = stack.enter_context(running)
        run_guests(hypervisor, disk, GUESTS)
        status, said = run_inside(hypervisor, "web-2", PREPARE)
        assert status == 0, said
        unit = UNIT.read_text(encoding="utf-8")
        save_inside(hypervisor, "web-2", f"/etc/systemd/system/{UNIT.name}", unit)
        yield hypervisor


@pytest.fixture
def wheels(tmp_path: Path, disk: Path) -> Path:
    """What pip finds on the host: forewarn, and what it depends on."""
    pinned = (f"--requirement={ROOT}/requirements/{name}.txt" for name in ("runtime", "libvirt"))
    collect = ("wheel", "--quiet", "--no-deps", "--require-hashes", *pinned)
    built = [*disk.parent.glob("forewarn-*.whl")]
    subprocess.run(
        [sys.executable, "-m", "pip", *collect, f"--wheel-dir={tmp_path / 'wheels'}"], check=True
    )
    for wheel in built:
        (tmp_path / "wheels" / wheel.name).symlink_to(wheel)
    return tmp_path / "wheels"


def test_afternoon_goes_as_the_page_says(hypervisor: KvmHost, wheels: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()

    with open_terminal(hypervisor, home, wheels) as terminal:
        reader = Reader(hypervisor=hypervisor, terminal=terminal, home=home)
        for step in read_tutorial(PAGE.read_text(encoding="utf-8")):
            reader.do(step)
        _, left = terminal.type("ip address; ip rule; nft list ruleset")

    assert METADATA not in left
    assert "forewarn" not in left
