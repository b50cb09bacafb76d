"""Fuzz every target, or one; or give a target one file again.

The targets are in targets.py, what they begin with is in corpus/. Each runs in a process of its
own, until its first finding. What it learns is kept in .cache/fuzz, and used again by the next run.

    .venv/bin/python -m tests.fuzz.run --seconds 60 documents
    .venv/bin/python -m tests.fuzz.run documents FILE
"""

import argparse
import json
import os
import re
import subprocess
import sys
import traceback
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from random import Random
from time import process_time
from typing import Any, Final, NoReturn

CORPUS: Final = Path(__file__).parent / "corpus"
NAMES: Final = tuple(sorted(folder.name for folder in CORPUS.iterdir()))
MOST_SECONDS: Final = 1.0
"""How long one execution may compute."""
_MOST_BYTES: Final = 8192
_MOST_GROWTH: Final = 500_000
"""How many blocks of memory may be in use more than after the first executions; caches fill up."""
_FIRST: Final = 1_000
_OPTIONS: Final = (
    f"-max_len={_MOST_BYTES}",
    "-timeout=60",
    "-rss_limit_mb=1024",
    "-print_final_stats=1",
)
_FUZZED: Final = ("forewarn", "tomllib", "email", "urllib", "ipaddress", "datetime")
"""The packages whose coverage guides."""
_ODD_VALUES: Final[tuple[Any, ...]] = (
    None,
    True,
    0,
    -1,
    2**70,
    1.5,
    float("nan"),
    float("inf"),
    "",
    "\ud800",
    [],
    {},
)


def main() -> int:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(
        prog=".venv/bin/python -m tests.fuzz.run",
        description="Fuzz each target until its first finding, or give a target one file again.",
    )
    parser.add_argument("target", nargs="?", choices=NAMES, help="fuzz only this one")
    parser.add_argument("file", nargs="?", type=Path, help="give it this file, without fuzzing")
    parser.add_argument("--seconds", type=float, default=5, help="CPU seconds each (default: 5)")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.file is not None:
        replay(options.target, options.file.read_bytes())
        print(f"{options.target} has no problem with {options.file}.")
        return 0
    if options.here:
        _fuzz(options.target, options.seconds)
    names = NAMES if options.target is None else (options.target,)
    return 1 if sum(_run(name, options.seconds) for name in names) else 0


def replay(name: str, data: bytes) -> None:
    """Give *data* to the target called *name*; whatever this raises is a finding."""
    # Whoever fuzzes has to be asked how to import first.
    from tests.fuzz.targets import TARGETS  # noqa: PLC0415

    began = process_time()
    TARGETS[name](data)
    seconds = process_time() - began
    assert seconds <= MOST_SECONDS, f"it computed for {seconds:.1f} seconds"


def _run(name: str, seconds: float) -> int:
    """Fuzz *name* in a process of its own, print a line, and return how many findings there are."""
    findings = _folder(name, "findings")
    before = set(findings.iterdir())
    words = (sys.executable, "-m", "tests.fuzz.run", "--here", "--seconds", str(seconds), name)
    log = findings.with_name("log")
    with log.open("wb") as output:
        code = subprocess.run(
            words, stdout=output, stderr=subprocess.STDOUT, check=False
        ).returncode
    said = log.read_text(errors="replace")
    executions = re.findall(r"(?:executions|number_of_executed_units): *([0-9]+)", said)
    covered = re.findall(r"\bcov: ([0-9]+)", said)
    found = sorted(set(findings.iterdir()) - before)
    number = len(found) or int(code != 0)
    print(
        f"{name:18}{int((executions or [0])[-1]):>10,} executions"
        f"{int((covered or [0])[-1]):>8,} edges{number:>4} finding{'' if number == 1 else 's'}",
        flush=True,
    )
    for path in found:
        print(f"  replay: .venv/bin/python -m tests.fuzz.run {name} {os.path.relpath(path)}")
    if number:
        print(f"  log: {os.path.relpath(log)}", flush=True)
    return number


def _folder(name: str, kind: str) -> Path:
    folder = Path(".cache/fuzz") / name / kind
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _fuzz(name: str, seconds: float) -> NoReturn:
    """Fuzz *name* in this process, for so many seconds of computing."""
    import atheris  # noqa: PLC0415  only `make fuzz` installs it
    import structlog  # noqa: PLC0415

    with atheris.instrument_imports(include=list(_FUZZED)):
        import tests.fuzz.targets  # noqa: F401, PLC0415

    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    atheris.enabled_hooks.add("str")
    findings = _folder(name, "findings")
    watched = _Watched(name, seconds, findings)
    arguments = [
        sys.argv[0],
        *_OPTIONS,
        f"-artifact_prefix={findings}/",
        str(_folder(name, "corpus")),
        str(CORPUS / name),
    ]

    def mutate(data: bytes, most: int) -> bytes:
        changed: bytes = atheris.Mutate(data, most)  # another function than before Setup
        return changed

    atheris.Setup(arguments, watched, custom_mutator=_mutator(mutate))
    atheris.Fuzz()
    sys.exit("the fuzzer ended by itself")


class _Watched:
    """A target that is counted, and ends the process when its time is over or it has failed."""

    def __init__(self, name: str, seconds: float, findings: Path) -> None:
        self._name = name
        self._until = process_time() + seconds
        self._findings = findings
        self._executions = 0
        self._blocks = 0

    def __call__(self, data: bytes) -> None:
        self._executions += 1
        try:
            replay(self._name, data)
        except BaseException:  # noqa: BLE001 - whatever it is, it is a finding
            traceback.print_exc()
            (self._findings / sha256(data).hexdigest()[:12]).write_bytes(data)
            self._end(1)
        if self._executions == _FIRST:
            self._blocks = sys.getallocatedblocks()
        if process_time() > self._until:
            grown = sys.getallocatedblocks() - self._blocks
            if self._blocks and grown > _MOST_GROWTH:
                print(f"memory in use has grown by {grown} blocks")
                self._end(1)
            self._end(0)

    def _end(self, code: int) -> NoReturn:
        print(f"executions: {self._executions}", flush=True)
        os._exit(code)


def _mutator(mutate: Callable[[bytes, int], bytes]) -> Callable[[bytes, int, int], bytes]:
    """Return what changes bytes, or one value of a line of JSON where there is one."""

    def change(data: bytes, most: int, seed: int) -> bytes:
        chance = Random(seed)  # noqa: S311
        lines = data.split(b"\n")
        number = chance.randrange(len(lines))
        try:
            content = json.loads(lines[number]) if chance.random() < 0.5 else None
        except (ValueError, RecursionError):
            content = None
        if not isinstance(content, dict | list):
            return mutate(data, most)
        _change_one(content, chance, lambda text: mutate(text.encode(errors="replace"), 100))
        lines[number] = json.dumps(content).encode()
        return b"\n".join(lines)[:most]

    return change


def _change_one(content: Any, chance: Random, mutate: Callable[[str], bytes]) -> None:
    """Change, remove or add one value somewhere in *content*."""
    places: list[tuple[Any, Any]] = []
    left = [content]
    while left:
        inner = left.pop()
        keys = list(inner) if isinstance(inner, dict) else range(len(inner))
        places += ((inner, key) for key in keys)
        left += (inner[key] for key in keys if isinstance(inner[key], dict | list))
    if not places:
        return
    within, key = chance.choice(places)
    other, other_key = chance.choice(places)
    match chance.randrange(4):
        case 0:
            within[key] = chance.choice(_ODD_VALUES)
        case 1:
            # As JSON, because nothing may be in itself.
            within[key] = json.loads(json.dumps(other[other_key]))
        case 2:
            del within[key]
        case _:
            text = within[key] if isinstance(within[key], str) else str(key)
            within[key] = mutate(text).decode(errors="replace")


if __name__ == "__main__":
    sys.exit(main())
