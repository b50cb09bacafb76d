"""Plant each bug of tests/mutants/mutants.toml in a copy of the project, and run its tests.

A row names a promise, a text that occurs exactly once in src, the text that breaks the promise, and
the tests that must fail. Rows contain no path and no line of src, so they survive moves. A row
whose text no longer occurs, or occurs twice, is an error.

The checkout is never modified. Each copy has its own virtual environment, in which `forewarn` is
the copy's, in child processes as well. Tests that fail without a mutant prove nothing, so the tests
of all chosen rows run once without one first.
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
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Final

ROOT: Final = Path(__file__).parent.parent
ROWS: Final = "tests/mutants/mutants.toml"
_FOLDERS: Final = ("src", "tests", "scripts", "docs", "examples", "contrib", "requirements")
_PYTEST: Final = ("-m", "pytest", "-q", "--no-header", "-p", "no:cacheprovider")
_EXAMPLE: Final = """example:
  scripts/mutants.py --only "lease of another holder" --show"""


class MutantError(Exception):
    """A row that cannot be judged, or tests that fail without a mutant."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """A bug: in *file*, which contains *find* once, *replace* takes its place."""

    name: str
    promise: str
    find: str
    replace: str
    tests: tuple[str, ...]
    file: Path

    def plant(self, source: str) -> str:
        """Return *source* with the bug."""
        return source.replace(self.find, self.replace)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Whether the tests caught a mutant, and how; their *output*."""

    is_caught: bool
    how: str
    output: str


def main() -> int:
    """Run the chosen mutants, print the score, and return the exit code."""
    options = _parse_arguments()
    began = time.monotonic()
    try:
        mutants = _choose(read_mutants(ROOT), options.only)
        with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
            copies = [make_copy(Path(folder) / str(each)) for each in range(options.jobs)]
            _check_tests(copies[0], mutants, options.jobs)
            caught = _run_all(mutants, copies, limit=options.limit, show=options.show)
    except MutantError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    seconds = time.monotonic() - began
    print(f"{caught} of {len(mutants)} mutants caught in {seconds:.0f} s")
    return 0 if caught == len(mutants) else 1


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Plant known bugs, and check that the tests catch each of them.",
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", metavar="NAME", action="append", help="run only this mutant")
    parser.add_argument("--jobs", type=int, default=2, help="mutants at a time (default: 2)")
    parser.add_argument(
        "--limit", type=float, default=300, help="seconds for each mutant (default: 300)"
    )
    parser.add_argument("--show", action="store_true", help="print the output of the tests")
    return parser.parse_args()


def read_mutants(root: Path) -> tuple[Mutant, ...]:
    """Return the rows; refuse those that do not fit the sources below *root*."""
    rows = tomllib.loads((root / ROWS).read_text(encoding="utf-8"))["mutant"]
    sources = {path: path.read_text(encoding="utf-8") for path in (root / "src").rglob("*.py")}
    mutants = tuple(_read_row(row, root, sources) for row in rows)
    if len({each.name for each in mutants}) < len(mutants):
        raise MutantError(f"Two rows of {ROWS} have the same name.")
    return mutants


def _read_row(row: dict[str, object], root: Path, sources: dict[Path, str]) -> Mutant:
    name, find, replacement = (str(row[key]) for key in ("name", "find", "replace"))
    times = sum(source.count(find) for source in sources.values())
    if times != 1:
        raise MutantError(f"{name}: its text occurs {times} times in src instead of once:\n{find}")
    path, source = next(each for each in sources.items() if find in each[1])
    if find == replacement:
        raise MutantError(f"{name}: it changes nothing.")
    tests = row["tests"]
    if not isinstance(tests, list) or not tests:
        raise MutantError(f"{name}: it names no tests.")
    if missing := [each for each in tests if not (root / each).exists()]:
        raise MutantError(f"{name}: {missing[0]} does not exist.")
    mutant = Mutant(
        name=name,
        promise=str(row["promise"]),
        find=find,
        replace=replacement,
        tests=tuple(tests),
        file=path.relative_to(root),
    )
    try:
        compile(mutant.plant(source), str(path), "exec")
    except SyntaxError as error:
        raise MutantError(f"{name}: the mutant is not valid Python: {error}") from error
    return mutant


def _choose(mutants: tuple[Mutant, ...], names: Sequence[str] | None) -> tuple[Mutant, ...]:
    if not names:
        return mutants
    if unknown := set(names).difference(each.name for each in mutants):
        raise MutantError(f"{ROWS} has no mutant called {min(unknown)!r}.")
    return tuple(each for each in mutants if each.name in names)


def make_copy(target: Path) -> Path:
    """Copy the project to *target*, with a virtual environment that imports the copy."""
    target.mkdir()
    for name in _FOLDERS:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, target / name, symlinks=True, ignore=ignored)
    for path in ROOT.iterdir():
        if path.is_file():
            shutil.copy2(path, target)
    environment = target / ".venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    paths = {"base": str(environment), "platbase": str(environment)}
    packages = Path(sysconfig.get_path("purelib", vars=paths))
    # The .pth file of the editable install is not read, because its folder itself comes from one.
    lines = (str(target / "src"), sysconfig.get_path("purelib"), "")
    (packages / "mutants.pth").write_text("\n".join(lines), encoding="utf-8")
    for name in ("forewarn", "forewarn-agent"):
        script = (Path(sys.prefix) / "bin" / name).read_text(encoding="utf-8")
        (environment / "bin" / name).write_text(
            script.replace(sys.prefix, str(environment)), encoding="utf-8"
        )
        (environment / "bin" / name).chmod(0o755)
    where = [environment / "bin" / "python", "-c", "import forewarn; print(forewarn.__file__)"]
    imported = subprocess.run(where, check=True, capture_output=True, text=True).stdout.strip()
    if not Path(imported).is_relative_to(target):
        raise MutantError(f"The copy in {target} imports {imported}.")
    return target


def _check_tests(copy: Path, mutants: Iterable[Mutant], jobs: int) -> None:
    tests = sorted({path for each in mutants for path in each.tests})
    print(f"{len(tests)} test paths without a mutant ...", flush=True)
    code, output = _run_tests(copy, "-n", str(jobs), "--dist", "loadfile", *tests)
    if code:
        raise MutantError(f"The tests fail without a mutant (exit code {code}):\n{output}")


def _run_all(mutants: Sequence[Mutant], copies: Sequence[Path], *, limit: float, show: bool) -> int:
    idle: SimpleQueue[Path] = SimpleQueue()
    for copy in copies:
        idle.put(copy)

    def run(mutant: Mutant) -> Finding:
        copy = idle.get()
        try:
            return run_mutant(mutant, copy, limit)
        finally:
            idle.put(copy)

    caught = 0
    with ThreadPoolExecutor(len(copies)) as pool:
        for mutant, finding in zip(mutants, pool.map(run, mutants), strict=True):
            word = "caught  " if finding.is_caught else "SURVIVED"
            print(f"{word}  {mutant.promise:22} {mutant.name}: {finding.how}", flush=True)
            if show:
                print(finding.output)
            caught += finding.is_caught
    return caught


def run_mutant(mutant: Mutant, copy: Path, limit: float) -> Finding:
    """Plant *mutant* in *copy*, run its tests, and put the original text back."""
    began = time.monotonic()
    path = copy / mutant.file
    original = path.read_text(encoding="utf-8")
    # Python tells compiled files by the second; each run of pytest takes longer than that.
    path.write_text(mutant.plant(original), encoding="utf-8")
    try:
        code, output = _run_tests(copy, "-x", *mutant.tests, limit=limit)
    finally:
        path.write_text(original, encoding="utf-8")
    seconds = time.monotonic() - began
    if code is None:
        return Finding(is_caught=True, how=f"not finished within {limit:.0f} s", output=output)
    if code not in {0, 1}:
        raise MutantError(f"{mutant.name}: pytest exited with code {code}:\n{output}")
    failures = [line for line in output.splitlines() if line.startswith(("FAILED", "ERROR"))]
    how = failures[0].partition(" - ")[0] if failures else "no test failed"
    return Finding(is_caught=code == 1, how=f"{how} ({seconds:.0f} s)", output=output)


def _run_tests(copy: Path, *arguments: str, limit: float | None = None) -> tuple[int | None, str]:
    """Return the exit code of pytest in *copy*, None if it took longer than *limit* seconds."""
    command = [copy / ".venv" / "bin" / "python", *_PYTEST, *arguments]
    tests = subprocess.Popen(
        command,
        cwd=copy,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = tests.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        os.killpg(tests.pid, signal.SIGKILL)
        return None, tests.communicate()[0]
    return tests.returncode, output


if __name__ == "__main__":
    sys.exit(main())
