"""Findings: what is wrong with a server, how bad it is, and what to do about it."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class FindingVerdict(StrEnum):
    """How bad a finding is."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The result of one check; *hint* says what to do."""

    check: str
    verdict: FindingVerdict
    sentence: str
    hint: str = ""


def read_finding(row: Mapping[str, str]) -> Finding:
    """Return what *row* says; it may be of a newer release, which knows more."""
    known = row["verdict"] in set(FindingVerdict)
    return Finding(
        check=row["check"],
        verdict=FindingVerdict(row["verdict"]) if known else FindingVerdict.WARN,
        sentence=row["sentence"],
        hint=row.get("hint", ""),
    )


def fine(check: str, sentence: str) -> Finding:
    """Return a finding that nothing is wrong."""
    return Finding(check=check, verdict=FindingVerdict.OK, sentence=sentence)


def doubtful(check: str, sentence: str, hint: str) -> Finding:
    """Return a finding about something that works but needs attention."""
    return Finding(check=check, verdict=FindingVerdict.WARN, sentence=sentence, hint=hint)


def wrong(check: str, sentence: str, hint: str) -> Finding:
    """Return a finding about something that does not work."""
    return Finding(check=check, verdict=FindingVerdict.FAIL, sentence=sentence, hint=hint)
