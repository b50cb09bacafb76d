"""TOML as operators write it: what it says, and on which line it says that."""

import json
import re
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias

from forewarn.protocol.errors import ForewarnError

_BYTE_ORDER_MARK: Final = "\N{BYTE ORDER MARK}"
_END_OF_SEVERAL: Final = re.compile(r"""([\]}]|\"{3}|'{3})\s*(#.*)?$""")
"""How the last line of a statement of several lines may end."""
_MOST_ATTEMPTS: Final = 20
"""How often a statement is looked at again until its end: each time costs its whole length."""

_Place: TypeAlias = tuple[str, int, str]
"""A table, its number among those of that name, and a key in it; "" where there is none."""


class NotTomlError(ForewarnError):
    """A text that is not TOML; *line* is the first that is wrong."""

    def __init__(self, problem: str, line: int) -> None:
        super().__init__(f"Not valid TOML: {problem}.")
        self.line = line


def decode(text: str) -> dict[str, Any]:
    """Return what the TOML *text* says, or refuse with the line that is wrong."""
    try:
        content = tomllib.loads(text.removeprefix(_BYTE_ORDER_MARK))
        repr(content)  # hexadecimal numbers may be too long to be written, unlike decimal ones
    except RecursionError:
        raise NotTomlError("its lists or tables are nested too deeply", 1) from None
    except ValueError as error:  # also for a number with too many digits
        found = re.search(r"\(at line ([0-9]+)", str(error))
        line = int(found[1]) if found else len(split_lines(text))
        raise NotTomlError(str(error), line) from error
    return content


def encode_table(name: str, entry: Mapping[str, Any]) -> str:
    """Return *entry* as a [[table]] of that *name*."""
    return f"[[{name}]]\n{encode_keys(entry)}"


def encode_keys(entry: Mapping[str, Any]) -> str:
    """Return a line of TOML for each key of *entry*."""
    return "".join(f"{key} = {_encode(value)}\n" for key, value in entry.items())


def _encode(value: object) -> str:
    if isinstance(value, dict):
        pairs = (f"{_encode(key)} = {_encode(each)}" for key, each in value.items())
        return f"{{ {', '.join(pairs)} }}"
    # What has quotes in it, as JSON has, can be read without all the backslashes.
    if isinstance(value, str) and '"' in value and "'" not in value and value.isprintable():
        return f"'{value}'"
    # Numbers, truth, text and lists of it are written as in JSON, except one character.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def split_lines(text: str) -> list[str]:
    """Return the lines of *text* as TOML counts them."""
    return text.replace("\r\n", "\n").removesuffix("\n").split("\n")


def place(path: Path, line: int | None) -> str:
    """Return how to name a *line* of the file at *path*."""
    return str(path) if line is None else f"{path}:{line}"


class TomlLines:
    """The lines of a TOML text, by what they set or begin.

    *names* has each [[table]] by its name and number, with what it says its name is.
    """

    def __init__(self, text: str) -> None:
        self.names: dict[tuple[str, int], str] = {}
        self._lines: dict[_Place, int] = {}
        for (table, number, key), line, value in _places(text):
            self._lines.setdefault((table, number, key), line)
            if not key:
                self.names[table, number] = ""
            elif key == "name" and (table, number) in self.names:
                self.names[table, number] = value if isinstance(value, str) else ""

    def find(self, table: str, number: int, *keys: str) -> int | None:
        """Return the line of the first of *keys* that this [[table]] sets, or where it begins.

        For a table that is written inline, that is where all of its name begin.
        """
        places = [(table, number, key) for key in (*keys, "")]
        known = (self._lines[each] for each in places if each in self._lines)
        return next(known, None) or self.find_key(table)

    def find_key(self, key: str) -> int | None:
        """Return the first line that sets *key* outside of tables, or begins a table of it."""
        return self._lines.get(("", 0, key)) or self._lines.get((key, 0, ""))


def _places(text: str) -> Iterator[tuple[_Place, int, object]]:
    """Yield each place that is declared, with the line it begins on and its value."""
    tables: Counter[str] = Counter()
    table, number, is_within = "", 0, False
    for line, source, statement in _statements(text.removeprefix(_BYTE_ORDER_MARK)):
        is_header = source.lstrip().startswith("[")
        for key, value in statement.items():
            if not is_header:
                if not is_within:
                    yield (table, number, key), line, value
            elif key == table and isinstance(value, Mapping) and value:
                # [table.key] belongs to the last [[table]], and all that follows to that key.
                is_within = True
                yield (table, number, next(iter(value))), line, value
            else:
                table, number, is_within = key, tables[key], False
                tables[key] += 1
                yield (table, number, ""), line, value


def _statements(text: str) -> Iterator[tuple[int, str, dict[str, Any]]]:
    # A statement of TOML is TOML by itself, and no shorter part of it is.
    begun, first, attempts = "", 1, 0
    for number, line in enumerate(split_lines(text), 1):
        begun += line + "\n"
        if number > first and (attempts == _MOST_ATTEMPTS or not _END_OF_SEVERAL.search(line)):
            continue
        attempts += 1
        try:
            statement = tomllib.loads(begun)
        except (ValueError, RecursionError):
            continue
        yield first, begun, statement
        begun, first, attempts = "", number + 1, 0
