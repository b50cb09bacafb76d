"""Where in a fleet file something is, for whoever has to mend it."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from forewarn.domain.names import name_key
from forewarn.operations.toml_lines import key_line, sets_key
from forewarn.protocol.errors import ForewarnError

SUBJECTS: Final = ("table", "index", "entry", "vm", "scope", "name", "key", "setting")
"""What an error, or a problem of the control API, may have that tells its place."""

_HEADER: Final = re.compile(r"""\s*\[\[\s*["']?(\w+)["']?\s*\]\]""")
_NAME: Final = re.compile(r"""\s*["']?name["']?\s*=\s*(["'])(?P<name>.*?)\1""")


@dataclass(frozen=True, slots=True)
class _Block:
    """One [[table]] of the file, with its lines and their numbers."""

    table: str
    name: str | None
    lines: tuple[tuple[int, str], ...]

    def line(self, key: str | None) -> int:
        """Return the line of *key*, else of the name, else where the block begins."""
        for wanted in filter(None, (key, "name")):
            for number, line in self.lines[1:]:
                if sets_key(line, wanted, self.table):
                    return number
        return self.lines[0][0]


class FleetLines:
    """The lines of a fleet file, by what they declare."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._blocks = tuple(_blocks(text))

    def find(self, subject: Mapping[str, object]) -> int | None:
        """Return the line that *subject* is about, which has some of `SUBJECTS`."""
        key = subject.get("key") or subject.get("setting")
        block = self._find_block(subject)
        if block is not None:
            return block.line(None if key is None else str(key))
        table, name = _named(subject)
        if name is None:
            return None if table is None else key_line(self._text, table)
        # Tables may be written inline, too.
        quoted = re.compile(rf"""["']{re.escape(name)}["']""", re.IGNORECASE)
        lines = enumerate(self._text.splitlines(), 1)
        return next((number for number, line in lines if quoted.search(line)), None)

    def _find_block(self, subject: Mapping[str, object]) -> _Block | None:
        table, name = _named(subject)
        blocks = [block for block in self._blocks if table in {None, block.table}]
        index = subject.get("index")
        if isinstance(index, int):
            return blocks[index] if index < len(blocks) else None
        if name is None:
            return None
        named = [block for block in blocks if name_key(block.name or "") == name_key(name)]
        exactly = [block for block in named if block.name == name and "name" not in subject]
        # Of two that have one name, the second is one too many.
        return next(reversed(exactly or named), None)


def subject_of(error: ForewarnError) -> dict[str, object]:
    """Return what *error* is about."""
    found = {key: getattr(error, key, None) for key in SUBJECTS}
    return {key: value for key, value in found.items() if value is not None}


def _named(subject: Mapping[str, object]) -> tuple[str | None, str | None]:
    """Return the table and the name of what *subject* is about, where they are known."""
    if "vm" in subject:
        return "virtual_machine", str(subject["vm"])
    if "scope" in subject:
        kind, _, rest = str(subject["scope"]).partition("/")
        return kind.replace("-", "_"), rest.partition("/")[0]
    table, name = subject.get("table"), subject.get("entry") or subject.get("name")
    return None if table is None else str(table), None if name is None else str(name)


def _blocks(text: str) -> Iterator[_Block]:
    lines = list(enumerate(text.splitlines(), 1))
    headers = [(at, found[1]) for at, line in lines if (found := _HEADER.match(line))]
    for (begin, table), (end, _) in pairwise([*headers, (len(lines) + 1, "")]):
        inside = tuple(lines[begin - 1 : end - 1])
        name = next((found for _, line in inside if (found := _NAME.match(line))), None)
        yield _Block(table, name["name"] if name else None, inside)
