"""Control characters (C0, DEL and C1) in text that others chose: what a terminal would obey.

Everything printed, logged or put into a calendar goes through one of these.
"""

import re
from typing import Final

_CONTROLS: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]|\r(?!\n)")
"""All but tabs and line breaks."""
_NOT_ESCAPED: Final = re.compile(r"[\x7f-\x9f]")
"""Those that JSON and TOML may have as they are."""


def printable(text: str) -> str:
    """Return *text* on one line, with a question mark for what cannot be printed."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def without_controls(text: str) -> str:
    """Return *text* with its lines, and a question mark for each control character."""
    return _CONTROLS.sub("?", text)


def escape_controls(text: str) -> str:
    r"""Return JSON or TOML *text* with every control character in its strings as \u00XX."""
    return _NOT_ESCAPED.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
