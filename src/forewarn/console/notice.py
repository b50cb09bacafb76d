"""/notice: notice promised against notice given, and how long approvals took."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from forewarn.console.rendering import span
from forewarn.console.visit import ConsoleRoute, Page, PageRoute, Visit
from forewarn.domain.names import ScopeId
from forewarn.domain.notice_report import (
    HIGH_PERCENTILE,
    SHARE_LIMITS,
    ApprovalClass,
    NoticeFigures,
    NoticeReport,
    NoticeVerdict,
    ShareClass,
)
from forewarn.operations.timelines import MOST_REPORTED, read_notice

PERIODS: Final = {
    "24h": ("24 hours", timedelta(hours=24)),
    "7d": ("7 days", timedelta(days=7)),
    "30d": ("30 days", timedelta(days=30)),
    "90d": ("90 days", timedelta(days=90)),
}
_USUAL: Final = "7d"
_SCOPES: Final = 50
"""How many scopes a page has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StackPart:
    """A part of a bar: how far from its beginning, and how long, in percent."""

    tone: str
    at: float
    size: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One class of a distribution: its label, how many there are, and the parts of its bar."""

    label: str
    events: int
    parts: tuple[StackPart, ...]
    detail: str = ""

    @property
    def size(self) -> float:
        """How high the bar is, in percent."""
        return sum(part.size for part in self.parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScopeLine:
    """The notice of one scope, and its bar: how many promises were kept, and in which way."""

    scope_id: ScopeId
    figures: NoticeFigures
    parts: tuple[StackPart, ...]


def show_notice(visit: Visit) -> Page:
    """Show what became of the notice of events in a period."""
    chosen = visit.query.text("period")
    period = chosen if chosen in PERIODS else _USUAL
    since = visit.now - PERIODS[period][1]
    report, is_cut = visit.read(lambda reading: read_notice(reading, since))
    pages = max(1, -(-len(report.scopes) // _SCOPES))
    page = min(visit.query.number("page", 1, least=1), pages)
    listed = list(report.scopes.items())[(page - 1) * _SCOPES : page * _SCOPES]
    values = {
        "period": period,
        "periods": {key: title for key, (title, _) in PERIODS.items()},
        "since": since,
        "total": report.total,
        "verdicts": NoticeVerdict,
        "approvals": tuple(_approval_columns(report)),
        "shares": tuple(_share_columns(report.shares)),
        "scopes": tuple(
            ScopeLine(scope_id=scope_id, figures=figures, parts=tuple(_parts(figures)))
            for scope_id, figures in listed
        ),
        "scope_count": len(report.scopes),
        "page": page,
        "pages": pages,
        "is_cut": is_cut,
        "most_events": MOST_REPORTED,
        "high": HIGH_PERCENTILE,
    }
    return Page(title="Notice report", template="notice.html", values=values)


def _approval_columns(report: NoticeReport) -> Iterator[Column]:
    """Yield the distribution of time to approve; last, what ran into NotBefore instead."""
    never = report.total.verdicts[NoticeVerdict.FULL]
    most = max([never, *(each.events for each in report.approvals)], default=0)
    for each in report.approvals:
        yield _column(_approval_label(each), [("done", each.events)], most)
    yield _column("never", [("canceled", never)], most, "started at NotBefore without approval")


def _approval_label(each: ApprovalClass) -> str:
    return (
        "later"
        if each.limit is None
        else f"≤ {span(each.limit)}".replace(" ", "\N{NO-BREAK SPACE}")
    )


def _share_columns(classes: Sequence[ShareClass]) -> Iterator[Column]:
    """Yield how much of the notice promised was given, by what ended it."""
    most = max((each.approved + each.cut_short + each.full for each in classes), default=0)
    floors = (0, *SHARE_LIMITS)
    for each, floor in zip(classes, floors, strict=True):
        label = "all" if each.limit is None else f"{floor}\N{EN DASH}{each.limit} %"
        kinds = [("done", each.full), ("approved", each.approved), ("failed", each.cut_short)]
        detail = f"{each.approved} approved, {each.cut_short} cut short, {each.full} in full"
        yield _column(label, kinds, most, detail)


def _column(label: str, kinds: Sequence[tuple[str, int]], most: int, detail: str = "") -> Column:
    events = sum(number for _, number in kinds)
    return Column(label=label, events=events, parts=tuple(_stack(kinds, most)), detail=detail)


def _parts(figures: NoticeFigures) -> Iterator[StackPart]:
    verdicts = figures.verdicts
    kinds = [
        ("done", verdicts[NoticeVerdict.FULL]),
        ("approved", verdicts[NoticeVerdict.APPROVED]),
        ("failed", verdicts[NoticeVerdict.CUT_SHORT]),
        ("unannounced", verdicts[NoticeVerdict.UNANNOUNCED]),
        ("canceled", verdicts[NoticeVerdict.CANCELED]),
    ]
    return _stack(kinds, figures.events)


def _stack(kinds: Sequence[tuple[str, int]], most: int) -> Iterator[StackPart]:
    """Yield the parts of a bar that would be full with *most*."""
    at = 0
    for tone, number in kinds:
        if number:
            yield StackPart(
                tone=tone, at=round(100 * at / most, 2), size=round(100 * number / most, 2)
            )
        at += number


ROUTES: Final[tuple[ConsoleRoute, ...]] = (PageRoute(path="/notice", show=show_notice),)
