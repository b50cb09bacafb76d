"""Prints findings."""

import os
import stat
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

import typer

from forewarn.cli.errors import ExitCode
from forewarn.cli.output import Output, Row, print_answer, print_line
from forewarn.domain.finding import Finding, FindingVerdict


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
