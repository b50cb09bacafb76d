"""Plant each bug of tests/mutants/mutants.toml in a copy of the project, and run its tests.

A row names a promise, a text that occurs exactly once in src, the text that breaks the promise, and
the tests that must fail. Rows contain no path and no line of src, so they survive moves. A row
whose text no longer occurs, or occurs twice, is an error.

The checkout is never modified. Each copy has a virtual environment of its own, in which `forewarn`
is the copy's, in child processes as well. Tests that fail without a mutant prove nothing, so the
tests of all chosen rows run once without one first.
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
import tomllib
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Final

ROOT: Final = Path(__file__).parent.parent
ROWS: Final = ROOT / "tests" / "mutants" / "mutants.toml"
_FOLDERS: Final = ("src", "tests", "scripts", "docs", "examples", "contrib", "requirements")
_PYTEST: Final = ("-m", "pytest", "-q", "--no-header", "-p", "no:cacheprovider")
_FAILURES: Final = ("FAILED tests/", "ERROR tests/")
"""How the lines of pytest's summary begin that name what has failed."""
CAUGHT, SURVIVED, ERROR = "caught", "SURVIVED", "ERROR"
"""Verdicts. After an error, the tests of a mutant have proved nothing."""


class MutantError(Exception):
    """A row that does not fit the sources, or tests that prove nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """A bug: in *file*, which contains *find* once, *replace* takes its place."""

    name: str
    promise: str
    find: str
    replace: str
    tests: tuple[str, ...]
    file: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class PytestRun:
    """The exit code of pytest, None if it was stopped, and what it printed."""

    code: int | None
    output: str
    seconds: float


def main() -> int:
    """Run the chosen mutants, print the score, and return the exit code."""
    parser = argparse.ArgumentParser(
        description="Plant known bugs, and check that the tests catch each of them.",
        epilog='example: .venv/bin/python scripts/mutants.py --only "a task is taken twice"',
    )
    parser.add_argument("--only", metavar="NAME", action="append", help="run only this mutant")
    parser.add_argument("--jobs", type=int, default=2, help="mutants at a time (default: 2)")
    parser.add_argument(
        "--limit", type=float, default=300, help="seconds for each mutant (default: 300)"
    )
    parser.add_argument("--check", action="store_true", help="only check the rows, run nothing")
    options = parser.parse_args()
    began = time.monotonic()
    try:
        mutants = choose(read_mutants(), options.only)
        if options.check:
            return 0
        with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
            copies = [make_copy(Path(folder) / str(number)) for number in range(options.jobs)]
            check_tests(copies[0], mutants, options.jobs)
            caught = run_all(mutants, copies, options.limit)
    except MutantError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"{caught} of {len(mutants)} mutants caught in {time.monotonic() - began:.0f} s")
    return 0 if caught == len(mutants) else 1


def read_mutants() -> tuple[Mutant, ...]:
    """Return the rows, or refuse those that do not fit the sources."""
    rows = tomllib.loads(ROWS.read_text(encoding="utf-8"))["mutant"]
    sources = {path: path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py")}
    mutants = tuple(read_row(row, sources) for row in rows)
    if len({each.name for each in mutants}) < len(mutants):
        raise MutantError(f"Two rows of {ROWS} have the same name.")
    return mutants


def read_row(row: Mapping[str, Any], sources: Mapping[Path, str]) -> Mutant:
    """Return the mutant of *row*; refuse one that does not fit *sources*."""
    name, find = row["name"], row["find"]
    times = sum(source.count(find) for source in sources.values())
    if times != 1:
        raise MutantError(f"{name}: its text occurs {times} times in src instead of once:\n{find}")
    path, source = next(each for each in sources.items() if find in each[1])
    if row["replace"] == find:
        raise MutantError(f"{name}: it changes nothing.")
    missing = [each for each in row["tests"] if not (ROOT / each).exists()]
    if missing or not row["tests"]:
        raise MutantError(f"{name}: its tests do not exist: {', '.join(missing)}")
    try:
        compile(source.replace(find, row["replace"]), str(path), "exec")
    except SyntaxError as error:
        raise MutantError(f"{name}: the mutant is not valid Python: {error}") from error
    return Mutant(**{**row, "tests": tuple(row["tests"]), "file": path.relative_to(ROOT)})


def choose(mutants: tuple[Mutant, ...], names: Sequence[str] | None) -> tuple[Mutant, ...]:
    """Return the mutants called *names*; without names, all of them."""
    if not names:
        return mutants
    if unknown := set(names).difference(each.name for each in mutants):
        raise MutantError(f"Unknown mutant {min(unknown)!r}; {ROWS.name} lists them.")
    return tuple(each for each in mutants if each.name in names)


def make_copy(target: Path) -> Path:
    """Copy the project to *target*, with a virtual environment that imports the copy."""
    target.mkdir()
    for name in _FOLDERS:
        shutil.copytree(ROOT / name, target / name, ignore=shutil.ignore_patterns("__pycache__"))
    for path in filter(Path.is_file, ROOT.iterdir()):
        shutil.copy2(path, target)
    venv = target / ".venv"
    _run(sys.executable, "-m", "venv", "--without-pip", str(venv))
    prefixes = {"base": str(venv), "platbase": str(venv)}
    packages = Path(sysconfig.get_path("purelib", vars=prefixes))
    # The .pth file of the editable install is not read, because its folder itself comes from one.
    paths = f"{target / 'src'}\n{sysconfig.get_path('purelib')}\n"
    (packages / "mutants.pth").write_text(paths, encoding="utf-8")
    for name in ("forewarn", "forewarn-agent"):
        program = venv / "bin" / name
        text = (Path(sys.prefix) / "bin" / name).read_text(encoding="utf-8")
        program.write_text(text.replace(sys.prefix, str(venv)), encoding="utf-8")
        program.chmod(0o755)
    imported = _run(str(venv / "bin/python"), "-c", "import forewarn; print(forewarn.__file__)")
    if not Path(imported).is_relative_to(target):
        raise MutantError(f"The copy in {target} imports {imported}.")
    return target


def _run(*command: str) -> str:
    done = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603 - ours
    return done.stdout.strip()


def check_tests(copy: Path, mutants: Sequence[Mutant], jobs: int) -> None:
    """Fail if the tests of *mutants* fail without a mutant."""
    tests = sorted({path for each in mutants for path in each.tests})
    print(f"running {len(tests)} test files and folders without a mutant ...", flush=True)
    run = run_tests(copy, "-n", str(jobs), "--dist", "loadfile", *tests)
    if run.code:
        raise MutantError(f"The tests fail without a mutant:\n{run.output}")


def run_all(mutants: Sequence[Mutant], copies: Sequence[Path], limit: float) -> int:
    """Run each mutant in one of *copies*, print its verdict, and return how many are caught."""
    idle: SimpleQueue[Path] = SimpleQueue()
    for copy in copies:
        idle.put(copy)

    def run(mutant: Mutant) -> bool:
        copy = idle.get()
        try:
            return run_mutant(mutant, copy, limit)
        finally:
            idle.put(copy)

    with ThreadPoolExecutor(len(copies)) as pool:
        return sum(pool.map(run, mutants))


def run_mutant(mutant: Mutant, copy: Path, limit: float) -> bool:
    """Plant *mutant* in *copy*, run its tests, and tell whether one has failed."""
    path = copy / mutant.file
    original = path.read_text(encoding="utf-8")
    # Compiled files are told apart by the second, and each run of pytest takes longer than that.
    path.write_text(original.replace(mutant.find, mutant.replace), encoding="utf-8")
    try:
        run = run_tests(copy, "-x", *mutant.tests, limit=limit)
    finally:
        path.write_text(original, encoding="utf-8")
    verdict, reason = judge(run)
    what = f"{mutant.promise}: {mutant.name}"
    print(f"{verdict:8}  {what}: {reason} ({run.seconds:.0f} s)", flush=True)
    return verdict == CAUGHT


def judge(run: PytestRun) -> tuple[str, str]:
    """Return the verdict on a mutant after *run* of its tests, and the reason."""
    match run.code:
        case None:
            return ERROR, "its tests did not end in time; raise --limit"
        case 0:
            skipped = ", but some were skipped" if "\nSKIPPED " in run.output else ""
            return SURVIVED, f"no test failed{skipped}"
        case 1:
            failed = (line for line in run.output.splitlines() if line.startswith(_FAILURES))
            return CAUGHT, next(failed, "a test failed").partition(" - ")[0]
        case code:
            return ERROR, f"pytest exited with code {code}:\n{run.output}\n"


def run_tests(copy: Path, *arguments: str, limit: float | None = None) -> PytestRun:
    """Run pytest in *copy*, for *limit* seconds at most."""
    began = time.monotonic()
    tests = subprocess.Popen(  # noqa: S603 - our own
        [str(copy / ".venv/bin/python"), *_PYTEST, *arguments],
        cwd=copy,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    code: int | None = None
    try:
        output, _ = tests.communicate(timeout=limit)
        code = tests.returncode
    except subprocess.TimeoutExpired:
        os.killpg(tests.pid, signal.SIGKILL)
        output, _ = tests.communicate()
    except BaseException:  # Ctrl-C does not reach a session of its own
        os.killpg(tests.pid, signal.SIGKILL)
        raise
    return PytestRun(code=code, output=output, seconds=time.monotonic() - began)


if __name__ == "__main__":
    sys.exit(main())
