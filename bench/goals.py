"""The lines of a table of goals."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Row:
    """A figure beside its goal."""

    what: str
    goal: str
    measured: str
    met: bool

    def __str__(self) -> str:
        verdict = "" if self.met else "  MISSED"
        return f"{self.what:<60}{self.goal:<35}{self.measured}{verdict}"
