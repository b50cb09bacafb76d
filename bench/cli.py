"""What a command costs: the CPU seconds of one, beside those of importing its libraries."""

import os
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from smoke import new_parser, run, sized

from forewarn.environment import environment_with
from forewarn.testing import Emulator

FOREWARN: Final = str(Path(sys.executable).with_name("forewarn"))
RUNS: Final = sized(15, smoke=1)
QUICK: Final = 0.15
ASKING: Final = 0.25
COMPLETING: Final = {
    "_FOREWARN_COMPLETE": "complete_bash",
    "COMP_WORDS": "forewarn event po",
    "COMP_CWORD": "2",
}


def main() -> None:
    """Print the figures beside their targets."""
    new_parser(__doc__).parse_args()
    with tempfile.TemporaryDirectory() as folder, Emulator() as emulator:
        name = emulator.vm("web-0").name
        server = {
            "FOREWARN_SERVER": emulator.control_url,
            "FOREWARN_TOKEN": emulator.token,
            "FOREWARN_STATE_DIR": folder,
        }
        _print("forewarn --version", (FOREWARN, "--version"), {}, QUICK)
        _print("forewarn --help", (FOREWARN, "--help"), {}, QUICK)
        for noun in ("serve", "config", "demo", "doctor", "emulator", "event", "maintenance"):
            _print(f"forewarn {noun} --help", (FOREWARN, noun, "--help"), {}, QUICK)
        _print("completion of a verb", (FOREWARN,), COMPLETING, QUICK)
        _print("forewarn event list", (FOREWARN, "event", "list"), server, ASKING)
        _print(f"forewarn vm show {name}", (FOREWARN, "vm", "show", name), server, ASKING)
    peer = 'python3 -c "import typer, httpx2"'
    print(f"{peer}: {_cpu((sys.executable, '-c', 'import typer, httpx2'), {}):.3f} s of CPU")


def _print(name: str, command: Sequence[str], variables: Mapping[str, str], target: float) -> None:
    print(f"{name}: {_cpu(command, variables):.3f} s of CPU (target {target})")


def _cpu(command: Sequence[str], variables: Mapping[str, str]) -> float:
    return statistics.median(_cpu_once(command, variables) for _ in range(RUNS))


def _cpu_once(command: Sequence[str], variables: Mapping[str, str]) -> float:
    silent = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
    process = os.posix_spawn(
        command[0], list(command), environment_with(variables), file_actions=silent
    )
    _, status, used = os.wait4(process, 0)
    if status:
        raise SystemExit(f"{' '.join(command)} has failed")
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    run(main)
