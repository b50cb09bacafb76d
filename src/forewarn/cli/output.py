"""What commands print: JSON for programs, tables for people, plain ones where nobody looks."""

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

Row = Mapping[str, Any]
"""One object as the control API answers it."""
Columns = Mapping[str, str | Callable[[Row], object]]
"""The title of each column with the key it shows, or with what makes its text."""


class Output(StrEnum):
    """How an answer is printed."""

    TABLE = "table"
    JSON = "json"


def print_json(answer: object) -> None:
    """Print *answer* for a program."""
    typer.echo(json.dumps(answer, indent=2, ensure_ascii=False))


def print_table(rows: Iterable[Row], columns: Columns) -> None:
    """Print one line for each of *rows*."""
    print_lines(
        tuple(columns), [tuple(_cell(row, shown) for shown in columns.values()) for row in rows]
    )


def print_fields(row: Row, columns: Columns) -> None:
    """Print one line for each field of *row* that says something."""
    fields = [(f"{title}:", _cell(row, shown)) for title, shown in columns.items()]
    said = [(title, text) for title, text in fields if text]
    width = max(len(title) for title, _ in said)
    for title, text in said:
        typer.echo(f"{title:<{width}}  {text}")


def print_lines(titles: Sequence[str], lines: Sequence[Sequence[str]]) -> None:
    """Print *lines* below *titles*: as a table on a terminal, else in plain columns."""
    if sys.stdout.isatty():
        table = Table(box=None, pad_edge=False, header_style="bold")
        for title in titles:
            table.add_column(title, overflow="fold")
        for line in lines:
            table.add_row(*map(Text, line))
        Console().print(table)
        return
    widths = [max(map(len, column)) for column in zip(titles, *lines, strict=True)]
    for line in (titles, *lines):
        padded = (f"{text:<{width}}" for text, width in zip(line, widths, strict=True))
        typer.echo("  ".join(padded).rstrip())


def time_of(value: str | None) -> str:
    """Return a time of the API as a person reads it, and can type it again."""
    if value is None:
        return ""
    time = datetime.fromisoformat(value).astimezone(UTC)
    return f"{time:%Y-%m-%d %H:%M:%S}Z"


def _cell(row: Row, shown: str | Callable[[Row], object]) -> str:
    value = row.get(shown) if isinstance(shown, str) else shown(row)
    if isinstance(value, list):
        return ",".join(map(str, value))
    if isinstance(value, dict):
        return ",".join(f"{key}={text}" for key, text in value.items())
    return "" if value is None else str(value)
