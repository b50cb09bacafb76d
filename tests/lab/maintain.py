"""What the command executor runs: `python -m tests.lab.maintain VERB FOLDER`.

It waits for a file `go` in the folder of the guest, does VERB to the guest, and ends when the guest
is back.
"""

import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.lab.channels import execute, inside, monitor

SECONDS = 180.0
FREEZE_SECONDS = 6.0
HAS_BOOTED = "journalctl --boot --unit forewarn-agent | grep agent_runs"
"""So that the agent finds its event still Started, as it does where booting takes longest."""


def cut(folder: Path) -> None:
    """Reset the machine, as the button does."""
    with monitor(folder, SECONDS) as qemu:
        qemu.ask("system_reset")
        qemu.wait_for_event("RESET")
    _wait_until_booted(folder)


def reboot(folder: Path) -> None:
    """Let the guest reboot itself in good order."""
    with monitor(folder, SECONDS) as qemu, inside(folder, SECONDS) as guest:
        # Its own guest-shutdown needs logind.
        guest.ask("guest-exec", path="/usr/bin/systemctl", arg=["reboot"])
        qemu.wait_for_event("RESET")
    _wait_until_booted(folder)


def freeze(folder: Path) -> None:
    """Let the machine stand still, and its clocks with it."""
    with monitor(folder, SECONDS) as qemu:
        qemu.ask("stop")
        time.sleep(FREEZE_SECONDS)
        qemu.ask("cont")


VERBS: Mapping[str, Callable[[Path], None]] = {"cut": cut, "reboot": reboot, "freeze": freeze}


def main(verb: str, folder: Path) -> None:
    while not (folder / "go").exists():
        time.sleep(0.05)
    VERBS[verb](folder)


def _wait_until_booted(folder: Path) -> None:
    deadline = time.monotonic() + SECONDS
    with inside(folder, SECONDS) as guest:
        while execute(guest, HAS_BOOTED, SECONDS)[0] != 0:
            assert time.monotonic() < deadline, f"no agent runs in the guest after {SECONDS} s"
            time.sleep(0.2)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
