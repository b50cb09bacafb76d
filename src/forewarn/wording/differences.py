"""A line for each difference between fleets: + web-1, ~ web-0: host kvm-1 → kvm-2, - web-2."""

import json
import re
from collections.abc import Iterable
from typing import Final

SIGNS: Final = {"added": "+", "changed": "~", "removed": "-"}
"""The sign of each alteration."""
_PLAIN: Final = re.compile(r"[\w.:/@+-]+")

Values = tuple[str, object, object]
"""A field, its value before and its value after."""


def difference_line(
    alteration: str, table: str, name: str, fields: Iterable[Values], *, arrow: str
) -> str:
    """Return the line about the entry *name* of a *table* of the fleet file."""
    said = ", ".join(f"{field} {_text(old)} {arrow} {_text(new)}" for field, old, new in fields)
    entry = f"{name}: {said}" if said else name
    return " ".join(filter(None, (SIGNS[alteration], entry_noun(table), entry)))


def entry_noun(table: str) -> str:
    """Return what an entry of *table* is called; a virtual machine goes without saying."""
    return "" if table == "virtual_machine" else table.replace("_", " ")


def _text(value: object) -> str:
    match value:
        case None:
            return "none"
        case list():
            return ",".join(map(_text, value))
        case str() if _PLAIN.fullmatch(value):
            return value
    return json.dumps(value, ensure_ascii=False)
