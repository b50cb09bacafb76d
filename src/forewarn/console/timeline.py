"""/timeline: past, running and forecast events on a line of time."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import chain, takewhile
from typing import Final, TypeAlias

from forewarn.console.gantt import (
    USUAL_ZOOM,
    ZOOMS,
    Band,
    Bar,
    Frame,
    PackedBars,
    Zoom,
    axis_of,
    draw_band,
    draw_calendar,
    draw_event,
    draw_step,
    frame_at,
    pack,
)
from forewarn.console.rendering import NONE
from forewarn.console.visit import ConsoleRoute, Form, FormError, Page, PageRoute, Visit, address
from forewarn.domain.event import ScheduledEvent
from forewarn.domain.maintenance import Maintenance
from forewarn.domain.names import HostName, MaintenanceId, VmName, name_key
from forewarn.domain.planning import ForeseenStep
from forewarn.domain.recurrence import Opening, describe_recurrence, openings
from forewarn.domain.scenario import likely_impact
from forewarn.domain.schedule import Schedule
from forewarn.domain.topology import Topology
from forewarn.domain.windows import ALWAYS, describe
from forewarn.operations.context import Context
from forewarn.operations.timelines import MOST_EVENTS, Timeline, TimelineOrder, read_timeline
from forewarn.protocol.vocabulary import EventType

NO_HOST: Final = NONE
"""The row of what is on no host that is known."""
_PAST: Final = 0.35
"""How much of the plot is before now, if it follows that."""
_ROWS: Final = 25
"""How many rows a page has."""
_BARS: Final = 160
"""How many events are drawn on one page, and how many of these in one row."""
_BARS_IN_ROW: Final = 40
_CALENDARS: Final = 12
"""How many Maintenances with limits and schedules are shown above the rows."""
_DAY: Final = timedelta(days=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineView:
    """What is looked at, as the address says it. Without *at*, the plot follows now."""

    by: str = "scope"
    zoom: str = USUAL_ZOOM.key
    at: str = ""
    scope: str = ""
    host: str = ""
    type: str = ""
    page: int = 1

    @property
    def step(self) -> Zoom:
        return next((zoom for zoom in ZOOMS if zoom.key == self.zoom), USUAL_ZOOM)

    def url(self) -> str:
        """Return the address of this view."""
        return address("/timeline", asdict(self), _USUAL)


_USUAL: Final = asdict(TimelineView())


@dataclass(frozen=True, slots=True, kw_only=True)
class PlotRow:
    """One scope or host, a Maintenance with a calendar, or a schedule: *kind* says which."""

    key: str
    kind: str
    packed: PackedBars
    bands: tuple[Band, ...] = ()
    left_out: int = 0
    note: str = ""


_Entry: TypeAlias = ScheduledEvent | ForeseenStep
"""What is drawn: an event, or a step that is foreseen."""


def show_timeline(visit: Visit) -> Page:
    """Show what happened, happens and is likely to happen."""
    view = _read_view(visit.query)
    context = visit.caller.context()
    frame = _frame(view, context.now)
    kind = EventType(view.type) if view.type else None
    wanted = TimelineOrder(since=frame.since, until=frame.until, event_type=kind, scope=view.scope)
    seen = visit.read(lambda reading: read_timeline(reading, context, wanted))
    grouped = _group(view, seen)
    pages = max(1, -(-len(grouped) // _ROWS))
    view = replace(view, page=min(view.page, pages))
    chosen = sorted(grouped, key=_row_order)[(view.page - 1) * _ROWS : view.page * _ROWS]
    rows = tuple(_rows({key: grouped[key] for key in chosen}, view, frame, seen, context))
    drawn = {bar.key: bar for row in rows for bar in row.packed.bars}
    values = {
        "view": view,
        "zooms": ZOOMS,
        "types": tuple(EventType),
        "frame": frame,
        "axis": axis_of(frame, view.step),
        "shift": 100 / (view.step.span / timedelta(minutes=1)) if view.step.days else None,
        "now_at": frame.at(context.now) if frame.has(context.now) else None,
        "moves": _moves(view, frame, context.now, pages),
        "calendars": tuple(_calendars(seen, frame)),
        "rows": rows,
        "row_count": len(grouped),
        "pages": pages,
        "first_row": (view.page - 1) * _ROWS + 1,
        "listed": sorted(drawn.values(), key=lambda bar: (bar.moment, bar.key), reverse=True),
        "left_out": sum(row.left_out for row in rows),
        "is_cut": seen.is_cut,
        "most_events": MOST_EVENTS,
        "no_host": NO_HOST,
        "machines_of": machines_of,
    }
    return Page(title="Timeline", template="timeline.html", values=values)


def machines_of(foreseen: ForeseenStep) -> tuple[VmName, ...]:
    """Return the virtual machines of a step."""
    return tuple(vm for share in foreseen.step.shares for vm in share.resources)


def _read_view(query: Form) -> TimelineView:
    view = TimelineView(
        by="host" if query.text("by") == "host" else "scope",
        zoom=query.text("zoom", USUAL_ZOOM.key),
        at=query.text("at"),
        scope=query.text("scope"),
        host=query.text("host"),
        type=query.text("type"),
        page=query.number("page", 1, least=1),
    )
    if view.type and view.type not in set(EventType):
        raise FormError(f"Type: {view.type!r} is not one of {', '.join(EventType)}.")
    return replace(view, zoom=view.step.key)


def _frame(view: TimelineView, now: datetime) -> Frame:
    span = view.step.span
    if not view.at:
        return frame_at(view.step, now - _PAST * span)
    try:
        middle = datetime.fromisoformat(view.at)
        middle = (middle if middle.tzinfo else middle.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        middle = None
    if middle is None or not 2000 <= middle.year < 3000:
        raise FormError(f"Time: {view.at!r} is not a valid time such as 2026-03-02T12:00:00Z.")
    return frame_at(view.step, middle - span / 2)


def _moves(view: TimelineView, frame: Frame, now: datetime, pages: int) -> dict[str, str]:
    """Return the addresses of other views: each but the pages of rows begins at its first page."""
    half = (frame.until - frame.since) / 2
    middle = frame.since + half

    def at(moment: datetime) -> str:
        return f"{moment:%Y-%m-%dT%H:%M:%SZ}"

    # Whoever changes the zoom keeps seeing now, if it was in sight.
    kept = "" if not view.at or frame.has(now) else at(middle)
    first = replace(view, page=1)
    return {
        "earlier": replace(first, at=at(middle - half)).url(),
        "later": replace(first, at=at(middle + half)).url(),
        "now": replace(first, at="").url(),
        "by-scope": replace(first, by="scope").url(),
        "by-host": replace(first, by="host").url(),
        "everything": replace(first, scope="", host="", type="").url(),
        "previous-rows": replace(view, page=view.page - 1).url() if view.page > 1 else "",
        "next-rows": replace(view, page=view.page + 1).url() if view.page < pages else "",
        **{f"zoom-{zoom.key}": replace(first, zoom=zoom.key, at=kept).url() for zoom in ZOOMS},
    }


def _group(view: TimelineView, seen: Timeline) -> dict[str, list[_Entry]]:
    """Return what there is for each row, as far as it is asked for."""
    found: dict[str, list[_Entry]] = {}
    entries: Iterable[_Entry] = chain(seen.events, seen.foreseen)
    for entry in entries:
        scopes, hosts = _places(entry, seen.topology)
        scopes = {scope for scope in scopes if name_key(view.scope) in name_key(scope)}
        hosts = {host for host in hosts if name_key(view.host) in name_key(host)}
        if scopes and hosts:
            for key in hosts if view.by == "host" else scopes:
                found.setdefault(key, []).append(entry)
    return found


def _places(entry: _Entry, topology: Topology) -> tuple[set[str], set[str]]:
    """Return the scopes and the hosts that *entry* is about."""
    if isinstance(entry, ScheduledEvent):
        return {entry.scope_id}, _hosts(entry.host, entry.resources, topology)
    step = entry.step
    # A host that carries nothing is a step without a scope.
    return set(step.scope_ids) or {NO_HOST}, _hosts(step.host, machines_of(entry), topology)


def _hosts(host: HostName | None, vms: Iterable[VmName], topology: Topology) -> set[str]:
    if host is not None:
        return {host}
    known = topology.virtual_machines
    return {(known[vm].host if vm in known else None) or NO_HOST for vm in vms}


def _row_order(key: str) -> tuple[bool, str]:
    return key == NO_HOST, name_key(key)


def _rows(
    grouped: Mapping[str, list[_Entry]],
    view: TimelineView,
    frame: Frame,
    seen: Timeline,
    context: Context,
) -> Iterator[PlotRow]:
    left = _BARS
    limited = {m.maintenance_id: m for m in seen.maintenances if m.course.calendar != ALWAYS}
    for key, entries in grouped.items():
        newest = entries[-min(left, _BARS_IN_ROW) :] if left else []
        left -= len(newest)
        packed = pack(bar for each in newest if (bar := _draw(each, frame, context)))
        calendars = {
            limited[own].course.calendar
            for each in entries
            if (own := _maintenance_of(each)) in limited
        }
        yield PlotRow(
            key=key,
            kind=view.by,
            packed=packed,
            bands=tuple(b for calendar in calendars for b in draw_calendar(calendar, frame)),
            left_out=len(entries) - len(newest) + packed.hidden,
        )


def _draw(entry: _Entry, frame: Frame, context: Context) -> Bar | None:
    if isinstance(entry, ScheduledEvent):
        rules = context.rules
        lasts = likely_impact(entry, is_simulated=rules.is_simulated, speed=rules.speed)
        return draw_event(entry, frame, context.now, lasts)
    share = next(iter(entry.step.shares), None)
    domain = "" if share is None else f"{share.scope_id}/{share.update_domain}"
    key = f"{entry.maintenance.maintenance_id}/{entry.step.host or domain}"
    return draw_step(entry, frame, key)


def _maintenance_of(entry: _Entry) -> MaintenanceId | None:
    own = entry if isinstance(entry, ScheduledEvent) else entry.maintenance
    return own.maintenance_id


def _calendars(seen: Timeline, frame: Frame) -> Iterator[PlotRow]:
    """Yield the Maintenances with windows or blackouts, and the schedules."""
    limited = [each for each in seen.maintenances if each.course.calendar != ALWAYS]
    for maintenance in limited[-_CALENDARS:]:
        yield _calendar_row(maintenance, frame)
    for schedule in seen.schedules[: max(0, _CALENDARS - len(limited))]:
        yield _schedule_row(schedule, frame)


def _calendar_row(maintenance: Maintenance, frame: Frame) -> PlotRow:
    calendar = maintenance.course.calendar
    return PlotRow(
        key=maintenance.maintenance_id,
        kind="maintenance",
        packed=pack(()),
        bands=tuple(draw_calendar(calendar, frame)),
        note="; ".join(chain(map(describe, calendar.windows), map(describe, calendar.blackouts))),
    )


def _schedule_row(schedule: Schedule, frame: Frame) -> PlotRow:
    # One that opened on the day before may still be open.
    found = takewhile(
        lambda each: each.opens_at < frame.until, openings(schedule.timetable, frame.since - _DAY)
    )
    windows = "; ".join(map(describe, schedule.order.course.calendar.windows))
    paused = " (paused)" if schedule.is_paused else ""
    return PlotRow(
        key=schedule.name,
        kind="schedule",
        packed=pack(()),
        bands=tuple(band for opening in found for band in _opening_bands(schedule, opening, frame)),
        note=f"Every {describe_recurrence(schedule.every)}, {windows}{paused}",
    )


def _opening_bands(schedule: Schedule, opening: Opening, frame: Frame) -> Iterator[Band]:
    what = f"{schedule.order.event_type} of schedule {schedule.name}"
    if opening.blackout is not None:
        title = f"Skipped, {what}. Blackout: {describe(opening.blackout)}"
        yield from draw_band(frame, "blackout", opening.opens_at, opening.closes_at, title)
    else:
        title = f"Window: {what}"
        yield from draw_band(frame, "window", opening.opens_at, opening.closes_at, title)


ROUTES: Final[tuple[ConsoleRoute, ...]] = (PageRoute(path="/timeline", show=show_timeline),)
