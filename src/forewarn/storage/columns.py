"""The types of columns: how words of the domain lie in a database, and come back."""

from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, date, datetime, time, timedelta
from enum import StrEnum
from typing import Any, Final, Generic, TypeVar

from sqlalchemy import JSON, BigInteger, Dialect, Integer, LargeBinary, String, TypeDecorator

from forewarn.domain.course import GATE_PATIENCE, Course
from forewarn.domain.event import Approval, Approver, Trigger
from forewarn.domain.maintenance import Resolution
from forewarn.domain.scenario import Announcement, Intervention, ScenarioStep
from forewarn.domain.windows import Blackout, Calendar, Window
from forewarn.protocol.document import Document, decode_document, encode_document
from forewarn.protocol.versions import NEWEST
from forewarn.protocol.vocabulary import EventId, EventSource, EventType

WholeNumber = BigInteger().with_variant(Integer(), "sqlite")
"""64 bits. SQLite numbers rows by itself only where the column says INTEGER."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


def to_microseconds(moment: datetime) -> int:
    """Return *moment* as microseconds since 1970, exactly."""
    return (moment - _EPOCH) // _MICROSECOND


def from_microseconds(number: int) -> datetime:
    """Return the moment, aware, in UTC."""
    return _EPOCH + timedelta(microseconds=number)


class MomentColumn(TypeDecorator[datetime]):
    """A moment, kept as whole microseconds since 1970 in UTC."""

    impl = WholeNumber
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> int | None:
        """Take any aware moment."""
        del dialect
        return None if value is None else to_microseconds(value)

    def process_result_value(self, value: int | None, dialect: Dialect) -> datetime | None:
        """Give it in UTC."""
        del dialect
        return None if value is None else from_microseconds(value)


class Duration(TypeDecorator[timedelta]):
    """A length of time, kept as whole microseconds."""

    impl = WholeNumber
    cache_ok = True

    def process_bind_param(self, value: timedelta | None, dialect: Dialect) -> int | None:
        """Take any length."""
        del dialect
        return None if value is None else value // _MICROSECOND

    def process_result_value(self, value: int | None, dialect: Dialect) -> timedelta | None:
        """Give it exactly."""
        del dialect
        return None if value is None else timedelta(microseconds=value)


_Word = TypeVar("_Word", bound=StrEnum)


class Word(TypeDecorator[_Word], Generic[_Word]):
    """One of the words of an enumeration, kept as it is spelled."""

    impl = String
    cache_ok = True

    def __init__(self, words: type[_Word]) -> None:
        super().__init__()
        self.words = words

    def process_bind_param(self, value: _Word | None, dialect: Dialect) -> str | None:
        """Take a word."""
        del dialect
        return None if value is None else value.value

    def process_result_value(self, value: str | None, dialect: Dialect) -> _Word | None:
        """Give the word."""
        del dialect
        return None if value is None else self.words(value)


class Names(TypeDecorator[tuple[str, ...]]):
    """Names in their order, kept as a JSON array."""

    impl = JSON
    cache_ok = True

    def process_result_value(self, value: Any | None, dialect: Dialect) -> tuple[str, ...]:
        """Give them in the same order."""
        del dialect
        return tuple(value or ())


class Resolutions(TypeDecorator[Mapping[str, Resolution]]):
    """What was decided about each id, kept as a JSON object."""

    impl = JSON
    cache_ok = True

    def process_bind_param(
        self, value: Mapping[str, Resolution] | None, dialect: Dialect
    ) -> dict[str, str]:
        """Take any mapping."""
        del dialect
        return {key: resolution.value for key, resolution in (value or {}).items()}

    def process_result_value(self, value: Any | None, dialect: Dialect) -> dict[str, Resolution]:
        """Give the words."""
        del dialect
        return {key: Resolution(word) for key, word in (value or {}).items()}


class Labels(TypeDecorator[Mapping[str, str]]):
    """Names with values, kept as a JSON object."""

    impl = JSON
    cache_ok = True

    def process_bind_param(
        self, value: Mapping[str, str] | None, dialect: Dialect
    ) -> dict[str, str]:
        """Take any mapping."""
        del dialect
        return dict(value or {})


class Approvals(TypeDecorator[tuple[Approval, ...]]):
    """The approvals of an event in their order, kept as a JSON array of objects."""

    impl = JSON
    cache_ok = True

    def process_bind_param(
        self, value: tuple[Approval, ...] | None, dialect: Dialect
    ) -> list[dict[str, object]]:
        """Take them."""
        del dialect
        return [
            {
                "approver": approval.approver.value,
                "name": approval.name,
                "approved_at": to_microseconds(approval.approved_at),
            }
            for approval in value or ()
        ]

    def process_result_value(self, value: Any | None, dialect: Dialect) -> tuple[Approval, ...]:
        """Give them in the same order."""
        del dialect
        return tuple(
            Approval(
                approver=Approver(approval["approver"]),
                name=approval["name"],
                approved_at=from_microseconds(approval["approved_at"]),
            )
            for approval in value or ()
        )


class EventGroups(TypeDecorator[Mapping[str, tuple[EventId, ...]]]):
    """Events by what they are called, in their order, kept as a JSON object of arrays."""

    impl = JSON
    cache_ok = True

    def process_bind_param(
        self, value: Mapping[str, tuple[EventId, ...]] | None, dialect: Dialect
    ) -> dict[str, list[EventId]]:
        """Take any mapping."""
        del dialect
        return {label: list(event_ids) for label, event_ids in (value or {}).items()}

    def process_result_value(
        self, value: Any | None, dialect: Dialect
    ) -> dict[str, tuple[EventId, ...]]:
        """Give them in the same order."""
        del dialect
        return {label: tuple(event_ids) for label, event_ids in (value or {}).items()}


class Timeline(TypeDecorator[tuple[ScenarioStep, ...]]):
    """The steps of a scenario, kept as a JSON array of objects."""

    impl = JSON
    cache_ok = True

    def process_bind_param(
        self, value: tuple[ScenarioStep, ...] | None, dialect: Dialect
    ) -> list[dict[str, object]]:
        """Take them."""
        del dialect
        return [_write_step(step) for step in value or ()]

    def process_result_value(self, value: Any | None, dialect: Dialect) -> tuple[ScenarioStep, ...]:
        """Give them in the same order."""
        del dialect
        return tuple(_read_step(step) for step in value or ())


def _write_step(step: ScenarioStep) -> dict[str, object]:
    # Lengths of time are whole microseconds, words are as they are spelled.
    return {
        key: value // _MICROSECOND if isinstance(value, timedelta) else value
        for key, value in asdict(step).items()
    }


def _read_step(step: Mapping[str, Any]) -> ScenarioStep:
    at = timedelta(microseconds=step["at"])
    if "trigger" in step:
        return Intervention(at=at, label=step["label"], trigger=Trigger(step["trigger"]))
    notice = step["notice"]
    return Announcement(
        at=at,
        label=step["label"],
        event_type=EventType(step["event_type"]),
        event_source=EventSource(step["event_source"]),
        description=step["description"],
        duration_in_seconds=step["duration_in_seconds"],
        notice=None if notice is None else timedelta(microseconds=notice),
        impact=timedelta(microseconds=step["impact"]),
    )


class CourseColumn(TypeDecorator[Course]):
    """How a Maintenance goes about it, kept as a JSON object.

    Rows of earlier releases leave out what was usual then.
    """

    impl = JSON
    cache_ok = True

    def process_bind_param(self, value: Course | None, dialect: Dialect) -> dict[str, object]:
        """Take it."""
        del dialect
        return {} if value is None else write_course(value)

    def process_result_value(self, value: Any | None, dialect: Dialect) -> Course:
        """Give the same."""
        del dialect
        return read_course(value or {})


def write_course(course: Course) -> dict[str, object]:
    return {
        "canary": list(course.canary),
        "at_once": course.at_once,
        "soak": course.soak // _MICROSECOND,
        "min_available": course.min_available,
        "gates": list(course.gates),
        "gate_patience": course.gate_patience // _MICROSECOND,
        "windows": [_write_window(window) for window in course.calendar.windows],
        "blackouts": [_write_blackout(blackout) for blackout in course.calendar.blackouts],
        "hold_all": course.hold_all,
        "in_order": course.in_order,
        "notice_outside": course.notice_outside,
    }


def read_course(kept: Mapping[str, Any]) -> Course:
    return Course(
        canary=tuple(kept.get("canary", ())),
        at_once=kept.get("at_once"),
        soak=timedelta(microseconds=kept.get("soak", 0)),
        min_available=kept.get("min_available", 0),
        gates=tuple(kept.get("gates", ())),
        gate_patience=timedelta(
            microseconds=kept.get("gate_patience", GATE_PATIENCE // _MICROSECOND)
        ),
        calendar=Calendar(
            windows=tuple(map(_read_window, kept.get("windows", ()))),
            blackouts=tuple(map(_read_blackout, kept.get("blackouts", ()))),
        ),
        hold_all=kept.get("hold_all", False),
        in_order=kept.get("in_order", False),
        notice_outside=kept.get("notice_outside", False),
    )


def _write_window(window: Window) -> dict[str, object]:
    return {
        "days": sorted(window.days),
        "opens": window.opens.isoformat(),
        "closes": window.closes.isoformat(),
        "zone": window.zone,
    }


def _read_window(kept: Mapping[str, Any]) -> Window:
    return Window(
        days=frozenset(kept["days"]),
        opens=time.fromisoformat(kept["opens"]),
        closes=time.fromisoformat(kept["closes"]),
        zone=kept["zone"],
    )


def _write_blackout(blackout: Blackout) -> dict[str, object]:
    return {
        "first": blackout.first.isoformat(),
        "last": blackout.last.isoformat(),
        "zone": blackout.zone,
        "name": blackout.name,
    }


def _read_blackout(kept: Mapping[str, Any]) -> Blackout:
    return Blackout(
        first=date.fromisoformat(kept["first"]),
        last=date.fromisoformat(kept["last"]),
        zone=kept["zone"],
        name=kept["name"],
    )


class Published(TypeDecorator[Document]):
    """A document, kept as the bytes that the newest api-version shows."""

    impl = LargeBinary
    cache_ok = True

    def process_bind_param(self, value: Document | None, dialect: Dialect) -> bytes | None:
        """Take a document."""
        del dialect
        return None if value is None else encode_document(value, NEWEST)

    def process_result_value(self, value: bytes | None, dialect: Dialect) -> Document | None:
        """Give the same document."""
        del dialect
        return None if value is None else decode_document(value)
