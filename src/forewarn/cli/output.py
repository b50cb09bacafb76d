"""What commands print: JSON for programs, tables for people, plain ones where nobody looks."""

import json
import re
import shutil
import sys
import unicodedata
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from itertools import zip_longest
from typing import Annotated, Any, Final

import typer

from forewarn.protocol.controls import escape_controls, printable, without_controls

_GAP: Final = "  "
_PIECE: Final = re.compile(r"[^\s,/]*(?:[,/]+|\s+|$)")
"""What stays together: a word with what follows it, an item of a list, a part of a path."""

Cells = Sequence[Sequence[str]]


def lay_out(titles: Sequence[str], lines: Cells, room: int | None) -> list[str] | None:
    """Return *lines* below *titles* in columns, at most *room* wide; nothing if they do not fit.

    Titles are broken before cells, and columns without content are left out before either fails.
    """
    table = list(zip(titles, *lines, strict=True))
    for columns in (table, [each for each in table if any(each[1:])] or table):
        if widths := _fit(columns, room):
            return _draw([_wrap_all(*each) for each in zip(columns, widths, strict=True)])
    return None


def width_of(text: str) -> int:
    """Return how many columns of a terminal *text* takes."""
    if text.isascii():
        return len(text)
    return sum(map(_width_of_character, text))


def _width_of_character(character: str) -> int:
    if unicodedata.combining(character) or unicodedata.category(character) in {"Cf", "Me", "Mn"}:
        return 0
    return 2 if unicodedata.east_asian_width(character) in {"F", "W"} else 1


def _fit(columns: Cells, room: int | None) -> list[int] | None:
    widest = [max(map(width_of, column)) for column in columns]
    if room is None:
        return widest
    room -= len(_GAP) * (len(columns) - 1)
    one_line = [max(_least(title), *map(width_of, cells), 0) for title, *cells in columns]
    least = [max(map(_least, column)) for column in columns]
    widths = widest
    for narrowest in (widest, one_line, least):
        widths = _narrow(widths, narrowest, room)
        if sum(widths) <= room:
            return widths
    return None


def _narrow(widths: Sequence[int], narrowest: Sequence[int], room: int) -> list[int]:
    """Take from the widest columns first, until all fit in *room* or are at their narrowest."""
    narrowed = list(widths)
    while sum(narrowed) > room:
        spare = [
            (width, number)
            for number, (width, least) in enumerate(zip(narrowed, narrowest, strict=True))
            if width > least
        ]
        if not spare:
            break
        narrowed[max(spare)[1]] -= 1
    return narrowed


def _least(text: str) -> int:
    return max(width_of(piece.rstrip()) for piece in _PIECE.findall(text))


def _wrap_all(column: Sequence[str], width: int) -> list[list[str]]:
    return [list(_wrap(text, width)) for text in column]


def _wrap(text: str, width: int) -> Iterator[str]:
    if width_of(text) <= width:
        yield text
        return
    line = ""
    for piece in _PIECE.findall(text):
        if line and width_of(line + piece.rstrip()) > width:
            yield line.rstrip()
            line = ""
        line += piece
    yield line.rstrip()


def _draw(columns: Sequence[Sequence[Sequence[str]]]) -> list[str]:
    widths = [max(width_of(part) for cell in column for part in cell) for column in columns]
    return [
        _GAP.join(map(_pad, parts, widths)).rstrip()
        for row in zip(*columns, strict=True)
        for parts in zip_longest(*row, fillvalue="")
    ]


def _pad(text: str, width: int) -> str:
    return text + " " * (width - width_of(text))


Row = Mapping[str, Any]
"""One object as the control API answers it."""
Columns = Mapping[str, str | Callable[[Row], object]]
"""The title of each column with the key it shows, or with what makes its text."""


class Output(StrEnum):
    """How an answer is printed."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


OutputOption = Annotated[Output, typer.Option("--output", "-o", help="Output format.")]
"""How a command asks for it."""


@dataclass(frozen=True, slots=True)
class ShownMoment:
    """A time of the API; as text it is what a person reads and can type again."""

    at: datetime

    def __str__(self) -> str:
        return f"{self.at:%Y-%m-%d %H:%M:%S}Z"

    def seen_from(self, now: datetime) -> str:
        """Return how far it is from *now*: in 14 min, 3 min ago."""
        seconds = round((self.at - now).total_seconds())
        size, unit = next(each for each in _UNITS if abs(seconds) >= 2 * each[0] or each[0] == 1)
        distance = f"{abs(seconds) // size} {unit}"
        return f"in {distance}" if seconds > 0 else f"{distance} ago"


OPTIONS: Final = {
    "as_is": "--as-is",
    "at_once": "--at-once",
    "clock: virtual": "--clock virtual",
    "expires": "--expires",
    "hold_all: false": "--no-hold-all",
    "journal: true": "--journal",
    "min_available": "--min-available",
    "operation: true": "--operation",
    "windows": "--window",
}
"""How people type the fields that sentences of the server name in backticks."""
_FIELD: Final = re.compile("`([^`]+)`")
_UNITS: Final[tuple[tuple[int, str], ...]] = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
"""The seconds of each unit; used from two of it on, so that little is rounded away."""
_ID: Final = re.compile(r"[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}")
_SHORTEST_ID: Final = 8
_now: ContextVar[datetime | None] = ContextVar("now", default=None)


@contextmanager
def told_from(now: datetime) -> Generator[None]:
    """Tell times from *now*: instead of the time in tables, beside it in fields."""
    token = _now.set(now)
    try:
        yield
    finally:
        _now.reset(token)


def print_answer(answer: Any, output: Output, print_it: Callable[[Any], None]) -> None:
    """Print *answer* as asked for: with *print_it*, or as it is."""
    if output is Output.JSON:
        print_json(answer)
    elif output is Output.YAML:
        print_yaml(answer)
    else:
        print_it(answer)


def print_one_of_many(answer: Row, output: Output, print_it: Callable[[Any], None]) -> None:
    """Print *answer* as one of those that come one after the other, to be read as they come."""
    if output is Output.JSON:
        typer.echo(escape_controls(json.dumps(answer)))
    elif output is Output.YAML:
        typer.echo("---")
        print_yaml(answer)
    else:
        print_it(answer)


def print_json(answer: object) -> None:
    """Print *answer* for a program."""
    typer.echo(escape_controls(json.dumps(answer, indent=2, ensure_ascii=False)))


def print_yaml(answer: object) -> None:
    """Print *answer* for a program, or for a person who wants all of it."""
    import yaml  # noqa: PLC0415 - slow to load, and few ask for it

    # Quoted, so that NEL can be written as an escape, which YAML takes for a line break.
    has_break = "\x85" in json.dumps(answer, ensure_ascii=False)
    style = {"default_style": '"', "allow_unicode": False} if has_break else {"allow_unicode": True}
    typer.echo(yaml.safe_dump(answer, sort_keys=False, **style), nl=False)


def print_line(text: str = "", *, err: bool = False) -> None:
    """Print one line, whatever is in *text*."""
    typer.echo(printable(text), err=err)


def with_options(sentence: str) -> str:
    """Return a *sentence* of the server with options in place of the fields that it names."""
    return _FIELD.sub(lambda field: OPTIONS.get(field[1], field[0]), sentence)


def print_text(text: str, *, err: bool = False) -> None:
    """Print the lines of *text*, which ends with a line break."""
    typer.echo(without_controls(text), nl=False, err=err)


def print_toml(text: str) -> None:
    """Print *text*, a TOML file."""
    typer.echo(escape_controls(text), nl=False)


def print_bytes(content: bytes) -> None:
    """Print *content* as it is to a file or a program, and without control characters to people."""
    if sys.stdout.isatty():
        print_text(content.decode(errors="replace"))
    else:
        typer.echo(content, nl=False)


def pick(columns: Columns, *titles: str) -> Columns:
    """Return those of *columns* that have these *titles*, in their order."""
    return {title: columns[title] for title in titles}


def print_table(rows: Iterable[Row], columns: Columns) -> None:
    """Print one line for each of *rows*."""
    cells = [tuple(_cell(row, shown) for shown in columns.values()) for row in rows]
    print_lines(tuple(map(str.upper, columns)), cells)


def print_fields(row: Row, columns: Columns) -> None:
    """Print one line for each field of *row* that says something."""
    _print_fields((title, _cell(row, shown, beside=True)) for title, shown in columns.items())


def table_of(noun: str, columns: Columns) -> Callable[[Row], None]:
    """Return what prints the list *noun* of an answer."""
    return lambda answer: print_table(answer[noun], columns)


def fields_of(columns: Columns) -> Callable[[Row], None]:
    """Return what prints the fields of an answer."""
    return lambda answer: print_fields(answer, columns)


def print_parts(*parts: tuple[Iterable[Row], Columns]) -> None:
    """Print a table for each of *parts* that has rows, after an empty line."""
    for rows, columns in parts:
        if rows:
            print_line()
            print_table(rows, columns)


def _print_fields(fields: Iterable[tuple[str, str]]) -> None:
    said = [(f"{title}:", text) for title, text in fields if text]
    width = max(len(title) for title, _ in said)
    for title, text in said:
        print_line(f"{title:<{width}}  {text}")


def print_lines(titles: Sequence[str], lines: Sequence[Sequence[str]]) -> None:
    """Print *lines* below *titles*; on a terminal that is too narrow, field by field."""
    lines = [tuple(map(printable, line)) for line in lines]
    room = None
    if lines and sys.stdout.isatty():
        lines = shorten_ids(lines)
        room = shutil.get_terminal_size().columns
    table = lay_out(titles, lines, room)
    if table is not None:
        typer.echo("\n".join(table))
        return
    for number, line in enumerate(lines):
        if number:
            typer.echo()
        _print_fields(zip(map(str.lower, titles), line, strict=True))


def shorten_ids(lines: Sequence[Sequence[str]]) -> list[tuple[str, ...]]:
    """Return the cells of a table, its ids as short as still tells them apart."""
    ids = {cell.lower() for line in lines for cell in line if _ID.fullmatch(cell)}
    length = _SHORTEST_ID
    while len({each[:length] for each in ids}) < len(ids):
        length += 1
    return [
        tuple(cell[:length].rstrip("-") if _ID.fullmatch(cell) else cell for cell in line)
        for line in lines
    ]


def short_node(replica: Row) -> str:
    """Return the node of a replica as it is shown beside its name: short, like an id."""
    node: str = replica["node"]
    return node.rpartition(":")[2][:_SHORTEST_ID]


def time_of(value: str | None) -> ShownMoment | None:
    """Return a time of the API."""
    return None if value is None else ShownMoment(datetime.fromisoformat(value).astimezone(UTC))


def wall_time_of(value: str | None) -> str:
    """Return a time that is not maintenance time, and so is never told from now."""
    return str(time_of(value) or "")


def _cell(row: Row, shown: str | Callable[[Row], object], *, beside: bool = False) -> str:
    value = row.get(shown) if isinstance(shown, str) else shown(row)
    if isinstance(value, ShownMoment):
        return _tell(value, beside=beside)
    if isinstance(value, list):
        return ",".join(map(str, value))
    if isinstance(value, dict):
        return ",".join(f"{key}={text}" for key, text in value.items())
    return "" if value is None else str(value)


def _tell(moment: ShownMoment, *, beside: bool) -> str:
    now = _now.get()
    if now is None:
        return str(moment)
    distance = moment.seen_from(now)
    return f"{moment} ({distance})" if beside else distance
