"""Plant each bug of tests/simulation/mutants.toml in a copy of the project, and simulate seeds.

A row is as in tests/mutants/mutants.toml, without tests; or only has the name of a row there. A
mutant is caught if one of the first seeds fails.
"""

import argparse
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import mutants
from mutants import ROOT, Mutant, MutantError

ROWS: Final = ROOT / "tests" / "simulation" / "mutants.toml"
_ANY_TEST: Final = "tests/simulation/test_simulation.py"


def main() -> int:
    """Simulate under each chosen mutant, print which seed caught it; return the exit code."""
    parser = argparse.ArgumentParser(description="Plant bugs that the simulation must find.")
    parser.add_argument("--only", metavar="NAME", action="append", help="only this mutant")
    parser.add_argument("--seeds", type=int, default=300, help="seeds per mutant (default: 300)")
    parser.add_argument("--limit", type=float, default=600, help="CPU seconds per mutant")
    parser.add_argument("--check", action="store_true", help="only check the rows, run nothing")
    options = parser.parse_args()
    try:
        chosen = mutants.choose(read_mutants(), options.only)
    except MutantError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if options.check:
        return 0
    caught = 0
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copy = mutants.make_copy(Path(folder) / "copy")
        for mutant in chosen:
            caught += is_caught(mutant, copy, seeds=options.seeds, limit=options.limit)
    print(f"{caught} of {len(chosen)} mutants caught")
    return 0 if caught == len(chosen) else 1


def read_mutants() -> tuple[Mutant, ...]:
    """Return the rows, or refuse those that do not fit the sources."""
    known = {each.name: each for each in mutants.read_mutants()}
    rows = tomllib.loads(ROWS.read_text(encoding="utf-8"))["mutant"]
    sources = {path: path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py")}
    found = []
    for row in rows:
        if "find" in row:
            found.append(mutants.read_row({**row, "tests": [_ANY_TEST]}, sources))
        elif row["name"] in known:
            found.append(known[row["name"]])
        else:
            raise MutantError(f"Unknown mutant {row['name']!r}; {mutants.ROWS.name} lists them.")
    return tuple(found)


def is_caught(mutant: Mutant, copy: Path, *, seeds: int, limit: float) -> bool:
    """Plant *mutant* in *copy*, simulate, and tell whether a seed has failed."""
    path = copy / mutant.file
    original = path.read_text(encoding="utf-8")
    path.write_text(original.replace(mutant.find, mutant.replace), encoding="utf-8")
    began = time.monotonic()
    try:
        done = simulate(copy, "--until-failure", "--quiet", "--seeds", str(seeds), limit=limit)
    finally:
        path.write_text(original, encoding="utf-8")
    is_found = done.returncode == 1 and done.stdout.startswith("seed ")
    lines = (done.stdout if is_found else done.stderr or done.stdout).strip().splitlines()
    said = lines[-1] if lines else "no seed has failed in the time that it may take"
    verdict = mutants.CAUGHT if is_found else mutants.SURVIVED
    seconds = time.monotonic() - began
    print(
        f"{verdict:8}  {mutant.promise}: {mutant.name}: {said[:160]} ({seconds:.0f} s)", flush=True
    )
    return is_found


def simulate(copy: Path, *arguments: str, limit: float) -> "subprocess.CompletedProcess[str]":
    """Simulate in *copy*, for *limit* seconds of CPU time at most."""
    words: Sequence[str] = ("-B", "-m", "tests.simulation", *arguments)
    return subprocess.run(  # noqa: S603 - our own
        [
            "/bin/sh",
            "-c",
            f'ulimit -t {int(limit)}; exec "$0" "$@"',
            copy / ".venv/bin/python",
            *words,
        ],
        cwd=copy,
        capture_output=True,
        text=True,
        check=False,
    )


if __name__ == "__main__":
    sys.exit(main())
