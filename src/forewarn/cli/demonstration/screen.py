"""Who watches: a pipe that gets one plain line after another, or somebody at a terminal.

There the fleet is a table: where each virtual machine is, and what it does about which event.
"""

import sys
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.live import Live
from rich.table import Table
from rich.text import Text

from forewarn.cli.demonstration.fleet import MEMBERS, DemoMachine
from forewarn.cli.demonstration.narration import Line
from forewarn.cli.demonstration.picture import (
    Activity,
    Doing,
    Picture,
    blockers,
    wait_for_approvals,
    waits,
)
from forewarn.domain.event import ScheduledEvent
from forewarn.protocol.controls import printable
from forewarn.protocol.vocabulary import EventType

_WIDE: Final = 100
_NARROW: Final = 78
"""With fewer columns the table leaves out what it can do without, for what each machine does."""
_DISPENSABLE: Final = frozenset({"SCOPE", "ANSWERS"})
_REASONS: Final = 2
_SPACIOUS: Final = 8
_STATUS_STYLES: Final[Mapping[str, str]] = {"Scheduled": "yellow", "Started": "bold red"}
_COLUMNS: Final = {
    "HOST": 5,
    "VM": 13,
    "SCOPE": 7,
    "ANSWERS": 7,
    "EVENT": 6,
    "STATUS": 9,
    "DOING": None,
}
"""The columns with their least widths, so that nothing jumps; the last takes what is left."""
_IN_IMPACT: Final[Mapping[EventType, str]] = {
    EventType.FREEZE: "frozen",
    EventType.REBOOT: "rebooting",
    EventType.REDEPLOY: "moving to another host",
    EventType.PREEMPT: "being evicted",
    EventType.TERMINATE: "being deleted",
}


class Audience:
    """Whoever is shown the demo on standard output, as long as *watching* is open.

    At a terminal they see the fleet as a table, with the last of the story below, and *stay* for
    more after the roll-out. A pipe gets the story, one plain line each. It needs no thread.
    """

    def __init__(self) -> None:
        console = Console()
        self.stays = sys.stdout.isatty() and not console.is_dumb_terminal
        self._live = Live(console=console, screen=True, auto_refresh=False)
        self.watching: AbstractContextManager[object] = self._live if self.stays else nullcontext()
        self._lines: deque[Line] = deque(maxlen=100)
        self._suggestions: tuple[str, ...] = ()
        self._farewell = "Stopped in the middle of the roll-out."

    def hear(self, lines: Iterable[Line]) -> None:
        """Take in what has happened."""
        for line in lines:
            self._lines.append(line)
            if not self.stays:
                print(printable(str(line)), flush=True)  # noqa: T201 - here the demo speaks

    def see(self, picture: Picture) -> None:
        """Take in how things are, which lines say all of."""
        if self.stays:
            scene = Scene(picture, tuple(self._lines), self._suggestions)
            self._live.update(scene, refresh=True)

    def be_told(self, suggestions: Iterable[str]) -> None:
        """Take in what to try next, and that the story has come to its end."""
        self._suggestions = tuple(suggestions)
        self._farewell = self._lines[-1].text

    def part(self) -> None:
        """Take leave, when everything is over; lines have told the end already."""
        if self.stays:
            print(printable(self._farewell))  # noqa: T201 - the screen is gone


@dataclass(frozen=True, slots=True)
class Scene:
    """One frame, made for whatever size the terminal has."""

    picture: Picture
    lines: tuple[Line, ...]
    suggestions: tuple[str, ...]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = options.max_width
        table = _draw_table(rows(self.picture), width)
        said = self.suggestions or reasons(self.picture)[:_REASONS]
        below = [part for text in said for part in Text(text, style="cyan").wrap(console, width)]
        left = (options.height or console.height) - table.row_count - 2 - len(below)
        space = [Text()] if left > _SPACIOUS else []
        story = _last_lines(self.lines, console, width, left - 2 * len(space))
        yield Group(_draw_title(self.picture), table, *space, *below, *space, *story)


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineRow:
    """One virtual machine."""

    host: str
    vm: str
    scope: str
    answers: str
    event: str = ""
    status: str = ""
    doing: str


def rows(picture: Picture) -> tuple[MachineRow, ...]:
    """Return one row for each virtual machine of the demo, host by host."""
    return tuple(_row(member, picture) for member in MEMBERS)


def reasons(picture: Picture) -> tuple[str, ...]:
    """Return why the roll-out is not further than it is."""
    own = [str(wait) for wait in waits(picture)]
    turns = [
        f"{host} comes after the other update domains of {' and '.join(scopes)}"
        for host, scopes in blockers(picture).items()
        if scopes
    ]
    return (*own, *turns)


def _row(member: DemoMachine, picture: Picture) -> MachineRow:
    event = picture.event_of(member.name)
    return MachineRow(
        host=member.host,
        vm=member.name,
        scope=member.place,
        answers=member.behaviour,
        event=event.event_type if event else "",
        status=event.event_status if event else "",
        doing=_doing(member, event, picture),
    )


def _doing(member: DemoMachine, event: ScheduledEvent | None, picture: Picture) -> str:
    if member.name in picture.troubles:
        return f"in trouble: {picture.troubles[member.name]}"
    if event is None:
        return "in service"
    activity = picture.activities.get(member.name, {}).get(event.event_id)
    if activity is None:
        return "has not heard of it yet"
    return _describe(activity, event, picture)


def _describe(activity: Activity, event: ScheduledEvent, picture: Picture) -> str:
    match activity.doing:
        case Doing.DRAINING:
            return f"drains{_left(activity.until, picture.now)}"
        case Doing.APPROVED:
            wait = wait_for_approvals(picture.operation(event))
            return f"waits for {', '.join(wait.whom)}" if wait else "approved"
        case Doing.NOT_LEADING:
            return f"leaves it to {event.resources[0]}"
        case Doing.SILENT:
            return f"says nothing{_left(event.not_before, picture.now)}"
        case Doing.IN_IMPACT:
            return _IN_IMPACT[event.event_type]


def _left(until: datetime | None, now: datetime) -> str:
    if until is None:
        return ""
    return f", {max((until - now).total_seconds(), 0):.0f} s left"


def _draw_table(lines: Iterable[MachineRow], room: int) -> Table:
    gap = 2 if room >= _WIDE else 1
    table = Table(box=None, pad_edge=False, padding=(0, gap, 0, 0), expand=True)
    left_out = _DISPENSABLE if room < _NARROW else frozenset()
    for title, width in _COLUMNS.items():
        if title in left_out:
            continue
        table.add_column(
            title,
            min_width=width,
            ratio=None if width else 1,
            no_wrap=True,
            overflow="ellipsis",
            header_style="dim",
        )
    host = ""
    for row in lines:
        cells = {
            "HOST": Text(row.host if row.host != host else "", style="bold"),
            "VM": Text(row.vm),
            "SCOPE": Text(row.scope, style="dim"),
            "ANSWERS": Text(row.answers, style="dim"),
            "EVENT": Text(row.event),
            "STATUS": Text(row.status, style=_STATUS_STYLES.get(row.status, "")),
            "DOING": Text(row.doing, style="" if row.event else "green"),
        }
        table.add_row(*(cell for title, cell in cells.items() if title not in left_out))
        host = row.host
    return table


def _draw_title(picture: Picture) -> Text:
    return Text.assemble(
        ("forewarn demo", "bold"), f"   {picture.now:%H:%M:%S}   ", ("Ctrl-C ends it", "dim")
    )


def _last_lines(lines: Sequence[Line], console: Console, width: int, height: int) -> list[Text]:
    """Return the last of *lines* that fit, whole but folded to *width*."""
    shown: list[Text] = []
    for line in reversed(lines):
        folded = list(_fold(line, console, width))
        if len(folded) + len(shown) > height:
            break
        shown = folded + shown
    return shown


def _fold(line: Line, console: Console, width: int) -> Iterator[Text]:
    time = f"{line.at:%H:%M:%S}  "
    parts = Text(printable(line.text)).wrap(console, max(width - len(time), 10))
    for number, part in enumerate(parts):
        yield Text.assemble((time if number == 0 else " " * len(time), "dim"), part)
