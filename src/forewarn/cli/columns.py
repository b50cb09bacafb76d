"""Text in columns that fit a terminal: lines are broken between words, never inside them."""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Final

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
