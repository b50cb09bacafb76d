"""If-None-Match and Prefer: what a client says about the document it already has."""

import re
from typing import Final

LONGEST_WAIT: Final = 300

_WAIT: Final = re.compile(rb'wait\s*=\s*"?([0-9]{1,9})"?', re.IGNORECASE)


def matches(if_none_match: bytes, etag: bytes) -> bool:
    """Tell whether *if_none_match* names *etag*: bare, quoted, weak, in a list, or as `*`."""
    return any(_opaque(tag) in {etag, b"*"} for tag in if_none_match.split(b","))


def _opaque(tag: bytes) -> bytes:
    tag = tag.strip()
    return (tag[2:] if tag[:2] in {b"W/", b"w/"} else tag).strip(b'"')


def preferred_wait(prefer: bytes) -> int | None:
    """Return the seconds of `Prefer: wait=N` (RFC 7240), cut to what we grant."""
    for preference in prefer.split(b","):
        match = _WAIT.fullmatch(preference.partition(b";")[0].strip())
        if match:
            return min(int(match[1]), LONGEST_WAIT)
    return None
