"""What an applied fleet file changes, as lines: + web-1, ~ web-0: host kvm-1 → kvm-2, - web-2."""

import json
import re
import sys
from collections import Counter
from typing import Final

from forewarn.cli.output import Row, print_line

_SIGNS: Final = {"added": "+", "changed": "~", "removed": "-"}
_PLAIN: Final = re.compile(r"[\w.:/@+-]+")
_ARROW: Final = "→"


def print_change(change: Row) -> None:
    """Print one line for each difference, and the counts."""
    for difference in change["differences"]:
        print_line(_line(difference))
    # One closed host is the reason for all who would have come there.
    for reason in dict.fromkeys(skipped["reason"] for skipped in change["skipped"]):
        print_line(f"! skipped: {reason}")
    print_line(_counts(change))


def print_rehearsed_change(change: Row) -> None:
    """Print *change* and what it takes to go ahead with it."""
    print_change(change)
    if change["needed_removals"]:
        print_line(f"Applying this needs --allow-removals {change['needed_removals']}.")


def _line(difference: Row) -> str:
    name, noun = difference["name"], _noun(difference)
    fields = ", ".join(
        f"{each['field']} {_text(each['before'])} {_arrow()} {_text(each['after'])}"
        for each in difference["fields"]
    )
    sign = _SIGNS[difference["alteration"]]
    return " ".join(filter(None, (sign, noun, f"{name}: {fields}" if fields else name)))


def _noun(difference: Row) -> str:
    table = str(difference["table"])
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


def _arrow() -> str:
    try:
        _ARROW.encode(sys.stdout.encoding)
    except UnicodeEncodeError:
        return "->"  # on a console that knows only the letters of one country
    return _ARROW


def _counts(change: Row) -> str:
    machines = ", ".join(f"{len(change[alteration])} {alteration}" for alteration in _SIGNS)
    if change["skipped"]:
        machines += f", {len(change['skipped'])} skipped"
    others = Counter(
        (_noun(each), each["alteration"]) for each in change["differences"] if _noun(each)
    )
    counted = ", ".join(
        f"{number} {noun}{'s' * (number > 1)} {alteration}"
        for (noun, alteration), number in others.items()
    )
    return f"{machines}; {counted}" if counted else machines
