"""What every kind of gate is asked, and what it says to it."""

import json
import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Protocol

from forewarn.domain.gate import Question

MOST_OUTPUT: Final = 2_000
"""How many characters of what a gate says are kept: the last ones."""
_MOST_READ: Final = 20 * MOST_OUTPUT
"""How many are looked at for them: some are not shown."""
_ESCAPES: Final = re.compile(
    r"\x1b(?:[]PX^_][^\x07\x1b\n]*(?:\x07|\x1b\\)|\[[0-?]*[ -/]*[@-~]|[!-/]*[0-~])"
)
"""What a terminal takes for a command: titles and such, colours, and the short ones.

None goes on past the next escape, so that each character is looked at once or twice.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class GateVerdict:
    """Whether it is open, and what it says to people.

    *retry_after* is when to ask again, if the gate wants that to be another time than usual.
    """

    is_open: bool
    output: str
    retry_after: timedelta | None = None


class Gate(Protocol):
    """One gate. Several questions are put to it at once, on one loop."""

    async def ask(self, question: Question, *, now: datetime) -> GateVerdict:
        """Put *question* and await the answer, within the gate's time-out."""

    def close(self) -> None:
        """End what is under way, as far as it can be."""


def shut(output: str) -> GateVerdict:
    """Return that it is shut, and why."""
    return GateVerdict(is_open=False, output=tidy(output))


def tidy(output: str) -> str:
    """Return the last of *output*, without what a terminal would take for a command."""
    read = _ESCAPES.sub("", output[-_MOST_READ:])
    lines = read.replace("\r\n", "\n").replace("\t", " ").split("\n")
    clean = "\n".join("".join(filter(str.isprintable, line)).rstrip() for line in lines)
    return clean.strip()[-MOST_OUTPUT:]


def encode_question(question: Question) -> bytes:
    """Return *question* as JSON, as commands and webhooks get it."""
    content = {
        "gate": question.gate,
        "maintenance_id": question.maintenance_id,
        "scope_ids": question.scope_ids,
        "steps_done": question.steps_done,
    }
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()
