"""Where in a fleet file something is, for whoever has to mend it."""

import re
from collections.abc import Mapping
from typing import Final

from forewarn.domain.names import name_key
from forewarn.files.toml import TomlLines, split_lines
from forewarn.protocol.errors import ForewarnError

SUBJECTS: Final = ("table", "index", "entry", "vm", "scope", "name", "key", "setting")
"""What an error, or a problem of the control API, may have that tells its place."""


class FleetLines:
    """The lines of a fleet file, by what they declare."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._lines = TomlLines(text)

    def find(self, subject: Mapping[str, object]) -> int | None:
        """Return the line that *subject* is about, which has some of `SUBJECTS`."""
        table, name = _named(subject)
        found = self._find_table(subject, table, name)
        if found is not None:
            key = subject.get("key") or subject.get("setting") or "name"
            return self._lines.find(*found, str(key), "name")
        if name is None:
            return None if table is None else self._lines.find_key(table)
        # Tables may be written inline, too.
        quoted = re.compile(rf"""["']{re.escape(name)}["']""", re.IGNORECASE)
        lines = enumerate(split_lines(self._text), 1)
        return next((number for number, line in lines if quoted.search(line)), None)

    def _find_table(
        self, subject: Mapping[str, object], table: str | None, name: str | None
    ) -> tuple[str, int] | None:
        known = {at: called for at, called in self._lines.names.items() if table in {None, at[0]}}
        index = subject.get("index")
        if isinstance(index, int):
            return next((at for at in known if at[1] == index), None)
        if name is None:
            return None
        named = [at for at, called in known.items() if name_key(called) == name_key(name)]
        exactly = [at for at in named if known[at] == name and "name" not in subject]
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
