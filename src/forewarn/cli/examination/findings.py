"""What an examination finds: a verdict, a sentence, and what to do about it."""

from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """How bad it is."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that was looked at."""

    check: str
    verdict: Verdict
    sentence: str
    hint: str = ""


def fine(check: str, sentence: str) -> Finding:
    """Return that nothing is wrong."""
    return Finding(check=check, verdict=Verdict.OK, sentence=sentence)


def doubtful(check: str, sentence: str, hint: str) -> Finding:
    """Return that it works, and somebody should look at it."""
    return Finding(check=check, verdict=Verdict.WARN, sentence=sentence, hint=hint)


def wrong(check: str, sentence: str, hint: str) -> Finding:
    """Return that it does not work."""
    return Finding(check=check, verdict=Verdict.FAIL, sentence=sentence, hint=hint)
