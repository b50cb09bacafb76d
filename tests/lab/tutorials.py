"""Tutorials, taken apart into what their reader does and sees.

A reader types what follows a prompt, `root@MACHINE:~# `, with `> ` before lines that continue it,
and saves files whose first line says where, `# PATH on MACHINE`. What the page shows below a
command has to be printed by it, in this order; `...` stands for lines that are left out, and `…`
for the rest of a line. Times may differ, and so may ids: where the page types an id that it has
shown before, the reader types the one that was printed instead.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

FENCE: Final = re.compile(r"^```(console|toml)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PROMPT: Final = re.compile(r"root@([\w-]+):~# (.*)")
CONTINUED: Final = "> "
SAVED: Final = re.compile(r"# (\S+) on ([\w-]+)\n")
ID: Final = re.compile(
    r"\b[0-9a-fA-F]{8}(?:(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})?\b|(?<=kill )\d+|(?<=process )\d+"
)
"""That of an event, or its beginning, that of a boot, and that of a process."""
BEGINNING: Final = 8
"""As much of an id as tables show."""
VARYING: Final = (
    (ID, "ID"),
    (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(Z| GMT)"), "TIME"),
    (re.compile(r"\b\d+ (s|min)\b"), "DURATION"),
    (re.compile(r"\s+"), " "),
)
LEFT_OUT: Final = frozenset({"", "..."})
REST: Final = "…"


@dataclass(frozen=True, slots=True, kw_only=True)
class Typed:
    """A command, and what the page shows of its output."""

    machine: str
    command: str
    shown: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """A file that the reader saves on a machine."""

    machine: str
    path: str
    text: str


def read_tutorial(page: str) -> Iterator[Typed | Saved]:
    """Yield what a reader of *page* does, in order."""
    for language, text in FENCE.findall(page):
        if language == "console":
            yield from _read_console(text.splitlines())
        else:
            found = SAVED.match(text)
            assert found, f"the page does not say where to save this: {text}"
            yield Saved(machine=found[2], path=found[1], text=text)


def _read_console(lines: list[str]) -> Iterator[Typed]:
    while lines:
        found = PROMPT.match(lines[0])
        assert found, f"a block has to begin with a prompt: {lines[0]}"
        command, shown = [found[2]], list[str]()
        del lines[0]
        while lines and lines[0].startswith(CONTINUED):
            command.append(lines.pop(0).removeprefix(CONTINUED))
        while lines and not PROMPT.match(lines[0]):
            shown.append(lines.pop(0))
        yield Typed(machine=found[1], command="\n".join(command), shown=tuple(shown))


def say_with(ids: Mapping[str, str], text: str) -> str:
    """Return *text* of the page with the *ids* that a reader was shown."""
    return ID.sub(lambda found: ids.get(found[0], found[0]), text)


def compare(shown: tuple[str, ...], printed: str, ids: Mapping[str, str]) -> dict[str, str]:
    """Return *ids* with those that are new in *printed*; fail if that is not as *shown*.

    What is the same id on the page has to be the same in print, and another one has to differ.
    """
    known = dict(ids)
    lines = iter(printed.splitlines())
    for line in shown:
        if line.strip() in LEFT_OUT:
            continue
        found = next((each for each in lines if _is_like(line, each)), None)
        assert found is not None, f"the page shows {line!r}, which is not printed here: {printed}"
        for ours, theirs in zip(ID.findall(line), ID.findall(found), strict=False):
            _learn(known, ours, theirs)
    return known


def _learn(known: dict[str, str], ours: str, theirs: str) -> None:
    for name, value in ((ours, theirs), (ours[:BEGINNING], theirs[:BEGINNING])):
        is_new = name not in known and value not in known.values()
        assert is_new or known.get(name) == value, f"{value} is not what the page calls {name}"
        known[name] = value


def _is_like(shown: str, printed: str) -> bool:
    shown, rest, _ = shown.partition(REST)
    if rest:
        return _mask(printed).startswith(_mask(shown))
    return _mask(shown) == _mask(printed)


def _mask(line: str) -> str:
    for pattern, word in VARYING:
        line = pattern.sub(word, line)
    return line.strip()
