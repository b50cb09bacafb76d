"""Where events stand on a line of time: pure geometry, in percent of the width of the plot.

Percent let one drawing fit a desk and a phone. An event is drawn as pieces, one for each phase of
its life, and marks at moments of it.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Final

from forewarn.domain.event import Outcome, ScheduledEvent
from forewarn.domain.planning import ForeseenStep
from forewarn.domain.windows import Calendar, dark_between, describe, open_between
from forewarn.protocol.vocabulary import EventStatus

_DAY: Final = timedelta(days=1)
_HOUR: Final = timedelta(hours=1)
_LEAST_WIDTH: Final = 0.7
"""What is shorter is still seen."""
_LEAST_FOR_MARKS: Final = 2.0
"""Marks would cover a bar that is narrower, so that it has none but those of how it ended."""
_CAPTION: Final = 26
"""How many characters of a caption are shown."""
_PER_CHARACTER: Final = 0.74
"""How wide one of them is, in percent of a plot on a desk."""
_ENDINGS: Final = frozenset({"failed", "canceled"})
_MOST_LANES: Final = 8
"""How many bars stand above each other in one row."""
_LANES_WITH_CAPTIONS: Final = 4
"""A row that would take more of them has no captions."""
_GAP: Final = 0.4
"""How far apart two bars in one lane are at least."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Zoom:
    """How much time the plot shows, and how far apart its lines are: those with a label, and all.

    Lines that stand for *days* belong at midnight of wherever the reader is.
    """

    key: str
    title: str
    span: timedelta
    labels: timedelta
    lines: timedelta

    @property
    def days(self) -> bool:
        return self.lines >= _DAY


ZOOMS: Final = tuple(
    Zoom(key=key, title=title, span=span, labels=labels, lines=lines)
    for key, title, span, labels, lines in (
        ("hour", "Hour", _HOUR, _HOUR / 6, _HOUR / 12),
        ("6h", "6 hours", 6 * _HOUR, _HOUR, _HOUR / 2),
        ("day", "Day", _DAY, 3 * _HOUR, _HOUR),
        ("week", "Week", 7 * _DAY, _DAY, _DAY),
        ("month", "Month", 30 * _DAY, 7 * _DAY, _DAY),
    )
)
USUAL_ZOOM: Final = ZOOMS[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """The part of time that is shown."""

    since: datetime
    until: datetime

    def at(self, moment: datetime) -> float:
        """Return where *moment* stands, in percent; below 0 or above 100 if it is not shown."""
        return round(100 * ((moment - self.since) / (self.until - self.since)), 2)

    def has(self, moment: datetime | None) -> bool:
        return moment is not None and self.since <= moment <= self.until

    def clip(self, begins: datetime, ends: datetime) -> tuple[float, float] | None:
        """Return where it begins and how wide it is, as far as it is shown; None if it is not."""
        left, right = max(0.0, self.at(begins)), min(100.0, self.at(ends))
        if right < 0 or left > 100 or right < left:
            return None
        width = max(right - left, _LEAST_WIDTH)
        return round(min(left, 100 - width), 2), round(width, 2)


def frame_at(zoom: Zoom, since: datetime) -> Frame:
    """Return the frame that begins about *since*, so that it moves in small steps only."""
    step = zoom.span / 120
    begin = datetime.min.replace(tzinfo=UTC)
    since = begin + (since - begin) // step * step
    return Frame(since=since, until=since + zoom.span)


@dataclass(frozen=True, slots=True, kw_only=True)
class AxisLine:
    """A line of the axis, with a label or without; a day of the week comes before its label."""

    at: float
    moment: datetime
    label: str = ""
    weekday: str = ""


def axis_of(frame: Frame, zoom: Zoom) -> tuple[AxisLine, ...]:
    """Return the lines of the axis; with a day more on either side, if they may be moved."""
    begin = datetime.min.replace(tzinfo=UTC)
    spare = _DAY if zoom.days else timedelta(0)
    first = -((begin - frame.since + spare) // zoom.lines)
    last = (frame.until + spare - begin) // zoom.lines
    return tuple(
        _line(frame, zoom, begin + number * zoom.lines, is_labelled=_has_label(zoom, number))
        for number in range(first, last + 1)
    )


def _has_label(zoom: Zoom, number: int) -> bool:
    return number % round(zoom.labels / zoom.lines) == 0


def _line(frame: Frame, zoom: Zoom, moment: datetime, *, is_labelled: bool) -> AxisLine:
    is_day = zoom.days or not (moment.hour or moment.minute)
    label = f"{moment.day} {moment:%b}" if is_day else f"{moment:%H:%M}"
    return AxisLine(
        at=frame.at(moment),
        moment=moment,
        label=label if is_labelled else "",
        weekday=f"{moment:%a} " if is_labelled and zoom.days else "",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """One phase of an event: *kind* is notice, impact, expected or forecast-notice."""

    kind: str
    at: float
    width: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PlotMark:
    """A moment of an event: *kind* is the shape."""

    kind: str
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One event, or one step that is foreseen, in one row; *moment* is when its impact begins."""

    key: str
    tone: str
    caption: str
    moment: datetime
    pieces: tuple[Piece, ...]
    marks: tuple[PlotMark, ...] = ()
    event: ScheduledEvent | None = None
    foreseen: ForeseenStep | None = None
    lane: int = 0

    @property
    def left(self) -> float:
        places = (*(piece.at for piece in self.pieces), *(mark.at for mark in self.marks))
        return min(places, default=0.0)

    @property
    def right(self) -> float:
        ends = (piece.at + piece.width for piece in self.pieces)
        return max((*ends, *(mark.at for mark in self.marks)), default=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """Hours with a meaning of their own: *kind* is window or blackout."""

    kind: str
    at: float
    width: float
    title: str


def draw_event(
    event: ScheduledEvent, frame: Frame, now: datetime, lasts: timedelta | None
) -> Bar | None:
    """Return *event* as it is drawn *now*, if the frame shows any of it.

    It *lasts* so long in all likelihood; None if that is not known.
    """
    pieces = tuple(_clipped(frame, _phases(event, now, lasts)))
    if not pieces:
        return None
    return Bar(
        key=event.event_id,
        tone=tone_of(event),
        caption=shorten(f"{event.event_type} {_names(event.resources)}"),
        moment=event.started_at or event.not_before,
        pieces=pieces,
        marks=tuple(_marks(event, frame, sum(piece.width for piece in pieces))),
        event=event,
    )


def draw_step(foreseen: ForeseenStep, frame: Frame, key: str) -> Bar | None:
    """Return a step as it is likely to take place, if the frame shows any of it."""
    likely, step = foreseen.likely, foreseen.step
    vms = [vm for share in step.shares for vm in share.resources]
    phases = (
        ("forecast-notice", likely.begins, likely.starts),
        ("forecast", likely.starts, likely.ends or likely.starts),
    )
    pieces = tuple(_clipped(frame, phases))
    if not pieces:
        return None
    caption = shorten(f"{foreseen.maintenance.event_type} {_names(vms) or step.host}")
    return Bar(
        key=key,
        tone="forecast",
        caption=caption,
        moment=likely.starts,
        pieces=pieces,
        foreseen=foreseen,
    )


def tone_of(event: ScheduledEvent) -> str:
    """Return how *event* stands, in the words of the style sheet."""
    match event.event_status:
        case EventStatus.SCHEDULED:
            return "scheduled"
        case EventStatus.STARTED:
            return "started"
        case EventStatus.COMPLETED:
            return "failed" if event.outcome is Outcome.FAILED else "done"
        case _:
            return "canceled"


def shorten(text: str) -> str:
    """Return the first characters of *text*."""
    return text if len(text) <= _CAPTION else text[: _CAPTION - 1].rstrip() + "…"


def _names(names: Sequence[str]) -> str:
    return f"{names[0]} +{len(names) - 1}" if len(names) > 1 else "".join(names)


def _phases(
    event: ScheduledEvent, now: datetime, lasts: timedelta | None
) -> Iterator[tuple[str, datetime, datetime]]:
    """Yield the phases of an event's life: which, from when, until when."""
    if event.started_at is None:
        ends = event.ended_at or max(event.not_before, now)
        yield "notice", event.created_at, ends
        if event.ended_at is None:
            yield "expected", ends, ends + (lasts or timedelta(0))
        return
    if event.created_at < event.started_at:
        yield "notice", event.created_at, event.started_at
    reached = event.ended_at or max(now, event.started_at)
    yield "impact", event.started_at, reached
    if event.ended_at is None and lasts is not None and event.started_at + lasts > reached:
        yield "expected", reached, event.started_at + lasts


def _marks(event: ScheduledEvent, frame: Frame, width: float) -> Iterator[PlotMark]:
    for kind, at in _moments(event):
        if frame.has(at) and (width >= _LEAST_FOR_MARKS or kind in _ENDINGS):
            yield PlotMark(kind=kind, at=frame.at(at))


def _moments(event: ScheduledEvent) -> Iterator[tuple[str, datetime]]:
    if event.is_announced:
        if event.first_not_before != event.not_before:
            yield "postponed", event.first_not_before
        yield "not-before", event.not_before
    for given in event.approvals:
        yield "approval", given.approved_at
    if event.overdue_at is not None:
        yield "overdue", event.overdue_at
    if event.ended_at is not None and tone_of(event) in _ENDINGS:
        yield tone_of(event), event.ended_at


def _clipped(frame: Frame, phases: Iterable[tuple[str, datetime, datetime]]) -> Iterator[Piece]:
    for kind, begins, ends in phases:
        place = frame.clip(begins, ends)
        if place is not None:
            yield Piece(kind=kind, at=place[0], width=place[1])


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedBars:
    """Bars in lanes, in which none covers another; *hidden* did not fit in."""

    bars: tuple[Bar, ...]
    lanes: int
    has_captions: bool
    hidden: int = 0


def pack(bars: Iterable[Bar]) -> PackedBars:
    """Put *bars* into lanes: with room for captions if that takes few lanes, or without."""
    ordered = sorted(bars, key=lambda bar: (bar.left, bar.key))
    roomy = _assign(ordered, has_captions=True)
    if max(roomy, default=0) < _LANES_WITH_CAPTIONS:
        return _packed(ordered, roomy, has_captions=True)
    return _packed(ordered, _assign(ordered, has_captions=False), has_captions=False)


def _assign(bars: Sequence[Bar], *, has_captions: bool) -> list[int]:
    """Return the first free lane of each, in the order in which they begin."""
    ends: list[float] = []
    lanes: list[int] = []
    for bar in bars:
        room = len(bar.caption) * _PER_CHARACTER if has_captions else 0
        # A caption near the right edge stands to the left of the end of its bar.
        left = min(bar.left, 100 - room)
        right = max(bar.right, left + room)
        lane = next((number for number, end in enumerate(ends) if end <= left), len(ends))
        ends[lane : lane + 1] = [right + _GAP]
        lanes.append(lane)
    return lanes


def _packed(bars: Sequence[Bar], lanes: Sequence[int], *, has_captions: bool) -> PackedBars:
    shown = tuple(
        replace(bar, lane=lane) for bar, lane in zip(bars, lanes, strict=True) if lane < _MOST_LANES
    )
    return PackedBars(
        bars=shown,
        lanes=max((bar.lane + 1 for bar in shown), default=1),
        has_captions=has_captions,
        hidden=len(bars) - len(shown),
    )


def draw_calendar(calendar: Calendar, frame: Frame) -> Iterator[Band]:
    """Yield when *calendar* is open, if it has windows, and its blackouts."""
    titles = "; ".join(map(describe, calendar.windows))
    if calendar.windows:
        for begins, ends in open_between(calendar, frame.since, frame.until):
            yield from draw_band(frame, "window", begins, ends, f"Window: {titles}")
    for blackout in calendar.blackouts:
        for begins, ends in dark_between(blackout, frame.since, frame.until):
            yield from draw_band(frame, "blackout", begins, ends, f"Blackout: {describe(blackout)}")


def draw_band(
    frame: Frame, kind: str, begins: datetime, ends: datetime, title: str
) -> Iterator[Band]:
    """Yield the hours between as far as they are shown."""
    place = frame.clip(begins, ends)
    if place is not None:
        yield Band(kind=kind, at=place[0], width=place[1], title=title)
