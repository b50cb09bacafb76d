"""What an examination finds: a verdict, a sentence, and what to do about it."""

import os
import stat
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path

import typer

from forewarn.cli.errors import ExitCode
from forewarn.cli.output import Output, Row, print_answer, print_line


class FindingVerdict(StrEnum):
    """How bad it is."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that was looked at."""

    check: str
    verdict: FindingVerdict
    sentence: str
    hint: str = ""


def fine(check: str, sentence: str) -> Finding:
    """Return that nothing is wrong."""
    return Finding(check=check, verdict=FindingVerdict.OK, sentence=sentence)


def doubtful(check: str, sentence: str, hint: str) -> Finding:
    """Return that it works, and somebody should look at it."""
    return Finding(check=check, verdict=FindingVerdict.WARN, sentence=sentence, hint=hint)


def wrong(check: str, sentence: str, hint: str) -> Finding:
    """Return that it does not work."""
    return Finding(check=check, verdict=FindingVerdict.FAIL, sentence=sentence, hint=hint)


def is_open_to_others(path: Path) -> bool:
    """Tell whether anybody but the owner of *path* can do anything with it."""
    mode = stat.S_IMODE(path.stat().st_mode)
    return os.name == "posix" and bool(mode & (stat.S_IRWXG | stat.S_IRWXO))


def print_findings(found: Iterable[Finding], output: Output) -> None:
    """Print what was *found*, and end with failed if anything is wrong."""
    findings = tuple(found)
    has_failed = any(finding.verdict is FindingVerdict.FAIL for finding in findings)
    rows = [{**asdict(finding), "verdict": str(finding.verdict)} for finding in findings]
    print_answer({"is_well": not has_failed, "findings": rows}, output, _print)
    if has_failed:
        raise typer.Exit(ExitCode.FAILED)


def _print(answer: Row) -> None:
    for finding in answer["findings"]:
        print_line(f"{finding['verdict']:<4}  {finding['check']:<16}  {finding['sentence']}")
        if finding["hint"]:
            print_line(f"{'':<24}{finding['hint']}")
