"""Where in a TOML file something is, for whoever has to mend it."""

import re
from collections.abc import Iterator
from pathlib import Path
from tomllib import TOMLDecodeError


def place(path: Path, line: int | None) -> str:
    """Return how to name a *line* of the file at *path*."""
    return str(path) if line is None else f"{path}:{line}"


def syntax_line(error: TOMLDecodeError) -> int | None:
    """Return the line that is not TOML."""
    found = re.search(r"at line (\d+)", str(error))
    return int(found[1]) if found else None


def key_line(text: str, key: str) -> int | None:
    """Return the first line that sets *key*, or begins a table of that name."""
    return next((at for at, line in _lines(text) if sets_key(line, key)), None)


def table_line(text: str, table: str, number: int, key: str = "") -> int | None:
    """Return the line of *key* in the [[table]] of that *number*, or where that begins."""
    header = re.compile(rf"\s*\[\[\s*{re.escape(table)}\s*\]\]")
    begins = [at for at, line in _lines(text) if header.match(line)]
    if number >= len(begins):
        return None
    # It goes on to the next [[table]], of whatever name.
    others = (at for at, line in _lines(text) if at > begins[number] and re.match(r"\s*\[\[", line))
    end = next(others, len(text.splitlines()) + 1)
    inside = ((at, line) for at, line in _lines(text) if begins[number] < at < end)
    return next((at for at, line in inside if key and sets_key(line, key, table)), begins[number])


def _lines(text: str) -> Iterator[tuple[int, str]]:
    return enumerate(text.splitlines(), 1)


def sets_key(line: str, key: str, table: str = "") -> bool:
    """Tell whether *line* sets *key*, or begins a table of that name within *table*."""
    within = rf"(?:{re.escape(table)}\.)?" if table else ""
    return re.match(rf"""\s*(?:\[+\s*{within})?["']?{re.escape(key)}\b""", line) is not None
