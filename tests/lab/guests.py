"""A guest of QEMU: Debian with systemd, the agent and its hooks. It runs without KVM, so slowly."""

import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from tests.e2e.conftest import STOP_SECONDS, wait_until
from tests.lab.channels import execute, inside

TREE = Path(__file__).parents[2] / ".lab" / "tree"
MAKE_DISK = Path(__file__).with_name("make_disk.sh")
BOOT_SECONDS = 120.0
COMMAND_SECONDS = 60.0
HOST = "10.0.2.2"
"""Where a guest finds the loopback of the machine it runs on."""
WORDS_FOR_THE_KERNEL = (
    "root=/dev/vda rw console=ttyS0 quiet panic=-1 systemd.journald.forward_to_console=1"
)


def make_disk(folder: Path, wheel: Path) -> Path:
    """Make a disk of .lab/tree with *wheel* installed."""
    disk = folder / "disk"
    subprocess.run(["/bin/sh", MAKE_DISK, TREE, wheel, disk], check=True)
    return disk


@dataclass(slots=True, kw_only=True)
class Guest:
    """A machine that boots from *disk*. What it writes is gone when it is switched off."""

    folder: Path
    disk: Path
    process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    def switch_on(self) -> None:
        """Boot, and return when commands are taken."""
        with (self.folder / "qemu.log").open("wb") as log:
            self.process = subprocess.Popen(self._command(), stdout=log, stderr=log)
        for name in ("monitor", "inside"):
            path = self.folder / name
            wait_until(path.exists, f"QEMU has not made {path}", STOP_SECONDS)
        with inside(self.folder, BOOT_SECONDS):
            pass

    def switch_off(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait(STOP_SECONDS)
            self.process = None

    def attempt(self, command: str) -> tuple[int, str]:
        """Run a command of the shell; return its status and what it said."""
        with inside(self.folder, BOOT_SECONDS) as channel:
            return execute(channel, command, COMMAND_SECONDS)

    def run(self, command: str) -> str:
        """Run a command that has to succeed; return what it said."""
        status, said = self.attempt(command)
        assert status == 0, f"{command}: {status}: {said}"
        return said.strip()

    def write(self, path: str, text: str) -> None:
        self.run(f"mkdir -p $(dirname {path}); cat > {path} <<'END'\n{text}\nEND")

    def enable_agent(self, port: int) -> None:
        """Configure the agent for a server on this machine, and start it as its unit says."""
        endpoint = f'endpoint = "http://{HOST}:{port}/vm/solo-0"'
        lines = ('approval = "when-ready"', 'ask_again = "1s"', endpoint)
        self.write("/etc/forewarn/agent.toml", "\n".join(lines))
        self.run("systemctl enable --now forewarn-agent")

    def ask_systemd(self, name: str, unit: str = "forewarn-agent") -> str:
        """Return a property of a unit."""
        return self.run(f"systemctl show --value --property {name} {unit}")

    def take(self, seconds: int, what: str) -> None:
        """Let the hook that notes take so long in a phase, or app.service for `stopping`."""
        self.write(f"/var/lib/seconds-of-{what}", str(seconds))

    @property
    def console(self) -> Path:
        """What the guest says: its kernel, and all of its journal."""
        return self.folder / "console"

    @property
    def clock(self) -> float:
        """What the guest takes the time for, in seconds."""
        return float(self.run("date +%s.%N"))

    @property
    def boot_id(self) -> str:
        return self.run("cat /proc/sys/kernel/random/boot_id")

    @property
    def notes(self) -> list[str]:
        """What hooks have noted, as `begin scheduled app=inactive`."""
        return (self.folder / "notes").read_text(encoding="ascii").splitlines()

    def wait_for_note(self, note: str, seconds: float = COMMAND_SECONDS) -> None:
        wait_until(
            lambda: any(line.startswith(note) for line in self.notes),
            f"no hook has noted {note!r}; see {self.console}",
            seconds,
        )

    def _command(self) -> list[str]:
        return [
            *("qemu-system-x86_64", "-accel", "tcg", "-smp", "2", "-m", "512"),
            *("-nodefaults", "-nographic"),
            *("-kernel", f"{TREE}/vmlinuz", "-initrd", f"{TREE}/initrd.img"),
            *("-append", WORDS_FOR_THE_KERNEL),
            *("-drive", f"file={self.disk},format=raw,if=virtio,snapshot=on"),
            *("-netdev", "user,id=lan", "-device", "virtio-net-pci,netdev=lan,romfile="),
            *("-serial", f"file:{self.console}", "-serial", f"file:{self.folder}/notes"),
            *("-qmp", f"unix:{self.folder}/monitor,server=on,wait=off"),
            *("-chardev", f"socket,id=inside,path={self.folder}/inside,server=on,wait=off"),
            *("-device", "virtio-serial"),
            *("-device", "virtserialport,chardev=inside,name=org.qemu.guest_agent.0"),
        ]
