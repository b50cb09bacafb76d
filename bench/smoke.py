"""Smoke runs: with `--smoke`, a benchmark takes tiny sizes and ends within seconds.

Such a run shows that the program still works; its figures mean nothing. The sizes are constants of
the modules, so the flag is read when this module is imported.
"""

import argparse
from collections.abc import Callable
from typing import Final, TypeVar

T = TypeVar("T")

INCOMPLETE: Final = 77
"""The exit code of a smoke run in which a part was skipped."""

_FLAG: Final = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
_FLAG.add_argument("--smoke", action="store_true", help="use tiny sizes, to test the program")
SMOKE: Final[bool] = _FLAG.parse_known_args()[0].smoke
PASSED_ON: Final = ("--smoke",) if SMOKE else ()
"""Arguments for a process in which the program runs itself again."""
_skipped: Final[list[str]] = []


def sized(full: T, *, smoke: T) -> T:
    """Return the size of this run: *full*, or that of a smoke run."""
    return smoke if SMOKE else full


def new_parser(description: str | None) -> argparse.ArgumentParser:
    """Return a parser for the arguments of a benchmark."""
    return argparse.ArgumentParser(description=description, parents=[_FLAG], allow_abbrev=False)


def skip_without(*programs: str) -> None:
    """Say that a part cannot be measured, because *programs* are not installed."""
    skip(f"{' and '.join(programs)} not installed; run make test-needs")


def skip(reason: str) -> None:
    """Say that a part cannot be measured on this machine, and why."""
    print(f"skipped: {reason}", flush=True)
    _skipped.append(reason)


def run(main: Callable[[], None]) -> None:
    """Run a benchmark; a smoke run that has skipped a part exits with INCOMPLETE.

    A full run exits with 0 even then, so that `make bench` continues with the next program.
    """
    main()
    if SMOKE and _skipped:
        raise SystemExit(INCOMPLETE)
