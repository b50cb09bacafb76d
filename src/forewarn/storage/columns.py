"""The types of columns: how words of the domain lie in a database, and come back.

What has fields is kept as a JSON object of them, by the types that they have in the domain. So a
new field needs nothing here, and gets its default in rows of earlier releases.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import UTC, date, datetime, time, timedelta
from enum import StrEnum
from operator import attrgetter
from types import NoneType, UnionType
from typing import Any, Final, Generic, TypeVar, get_args, get_origin, get_type_hints

from sqlalchemy import (
    JSON,
    BigInteger,
    Column,
    Dialect,
    Integer,
    LargeBinary,
    String,
    TypeDecorator,
)
from sqlalchemy.types import TypeEngine

from forewarn.domain.course import Course
from forewarn.domain.event import Approval
from forewarn.domain.impact import Impact
from forewarn.domain.maintenance import MaintenanceOrder, Resolution
from forewarn.domain.recurrence import describe_recurrence, read_recurrence
from forewarn.domain.scenario import ScenarioStep
from forewarn.domain.schedule import Occurrence
from forewarn.domain.windows import Calendar
from forewarn.ports.changes import StoreChange
from forewarn.protocol.document import Document, decode_document, encode_document
from forewarn.protocol.versions import NEWEST
from forewarn.protocol.vocabulary import EventId

T = TypeVar("T")
_Word = TypeVar("_Word", bound=StrEnum)

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


class Kept(TypeDecorator[T], Generic[T]):
    """Something that is kept as *kind*: *write* makes that of it, and *read* it of that."""

    impl: TypeEngine[Any] | type[TypeEngine[Any]] = String
    cache_ok = True

    def __init__(
        self, kind: TypeEngine[Any], write: Callable[[T], object], read: Callable[[Any], T | None]
    ) -> None:
        super().__init__()
        self.impl = self.kind = kind
        self.write = write
        self.read = read

    # For a thousand values a turn, so with no call to spare.

    def bind_processor(self, dialect: Dialect) -> Callable[[T | None], object]:
        """Return what takes it."""
        encode, write = self.impl_instance.bind_processor(dialect), self.write
        if encode is None:
            return lambda value: None if value is None else write(value)
        return lambda value: encode(None if value is None else write(value))

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[Any], T | None]:
        """Return what gives the same."""
        decode, read = self.impl_instance.result_processor(dialect, coltype), self.read
        if decode is None:
            return lambda value: None if value is None else read(value)
        return lambda value: None if value is None else read(decode(value))


class Word(Kept[_Word]):
    """One of the words of an enumeration, kept as it is spelled."""

    cache_ok = True

    def __init__(self, words: type[_Word]) -> None:
        super().__init__(
            String(), attrgetter("value"), {each.value: each for each in words}.__getitem__
        )
        self.words = words


def in_json(shape: type[T]) -> Kept[T]:
    """Return the column of what has this *shape*."""
    return Kept(JSON(), write_json, json_reader(shape))


def write_json(value: Any) -> object:
    """Return *value* in words that JSON has."""
    if isinstance(value, tuple):
        return [write_json(each) for each in value]
    if is_dataclass(value):
        return _write_fields(value)
    if isinstance(value, Mapping):
        return {key: write_json(each) for key, each in value.items()}
    return _WRITERS[type(value)](value) if type(value) in _WRITERS else value


def json_reader(shape: Any) -> Callable[[Any], Any]:
    """Return what makes a thing of *shape* out of what `write_json` has made of one."""
    kind, inside = get_origin(shape), get_args(shape)
    if is_dataclass(shape):
        return _fields_reader(shape)
    if kind is tuple:
        each = json_reader(inside[0])
        return lambda kept: tuple(map(each, kept))
    if kind in {dict, Mapping}:
        value = json_reader(inside[1])
        return lambda kept: {key: value(part) for key, part in kept.items()}
    if kind is UnionType:
        return _choice_reader([choice for choice in inside if choice is not NoneType])
    if isinstance(shape, type) and issubclass(shape, StrEnum):
        return shape
    return _READERS.get(kind or shape, _as_it_is)


def _write_fields(value: Any) -> dict[str, object]:
    kept: dict[str, object] = {}
    for field in fields(value):
        part = getattr(value, field.name)
        # What a calendar has lies beside the fields of the course, not inside one.
        kept |= _write_fields(part) if type(part) is Calendar else {field.name: write_json(part)}
    return kept


def _fields_reader(shape: Any) -> Callable[[Any], Any]:
    readers = {name: json_reader(hint) for name, hint in get_type_hints(shape).items()}

    def read(kept: Mapping[str, Any]) -> Any:
        if shape is Course:
            kept = {**kept, "calendar": kept}
        return shape(**{name: readers[name](kept[name]) for name in readers if name in kept})

    return read


def _choice_reader(choices: Sequence[Any]) -> Callable[[Any], Any]:
    readers = [json_reader(choice) for choice in choices]
    if len(readers) == 1:
        return lambda kept: None if kept is None else readers[0](kept)
    # Things with fields are told apart by these.
    names = [{field.name for field in fields(choice)} for choice in choices]
    return lambda kept: next(
        read(kept) for own, read in zip(names, readers, strict=True) if own <= kept.keys()
    )


def _as_it_is(kept: Any) -> Any:
    return kept


_WRITERS: Final[Mapping[type, Callable[[Any], object]]] = {
    datetime: to_microseconds,
    timedelta: lambda length: length // _MICROSECOND,
    date: date.isoformat,
    time: time.isoformat,
    frozenset: sorted,
}
_READERS: Final[Mapping[type, Callable[[Any], object]]] = {
    datetime: from_microseconds,
    timedelta: lambda number: timedelta(microseconds=number),
    date: date.fromisoformat,
    time: time.fromisoformat,
    frozenset: frozenset,
}

MomentColumn: Final = Kept(WholeNumber, to_microseconds, from_microseconds)
"""A moment, kept as whole microseconds since 1970 in UTC."""
Duration: Final = Kept(WholeNumber, write_json, json_reader(timedelta))
"""A length of time, kept as whole microseconds."""
# Every virtual machine has several of these two, so nothing looks at what is in them.
Names: Final[Kept[tuple[str, ...]]] = Kept(JSON(), _as_it_is, tuple)
Labels: Final[Kept[Mapping[str, str]]] = Kept(JSON(), dict, _as_it_is)
Approvals: Final = in_json(tuple[Approval, ...])
CourseColumn: Final = in_json(Course)
Resolutions: Final = in_json(dict[str, Resolution])
Timeline: Final = in_json(tuple[ScenarioStep, ...])
EventGroups: Final = in_json(dict[str, tuple[EventId, ...]])
"""Events by what they are called."""
OrderColumn: Final = in_json(MaintenanceOrder)
HintColumn: Final = in_json(StoreChange)
Occurrences: Final = in_json(tuple[Occurrence, ...])
Said: Final = in_json(Impact)
RecurrenceColumn: Final = Kept(String(), describe_recurrence, read_recurrence)
"""How often a schedule comes round, kept as it would be typed."""
Published: Final[Kept[Document]] = Kept(
    LargeBinary(), lambda document: encode_document(document, NEWEST), decode_document
)
"""A document, kept as the bytes that the newest api-version shows."""


def key(name: str, kind: Any = String) -> Column[Any]:
    """Return a column that is in the primary key; the database numbers only sequences."""
    numbering: Any = "auto" if name == "sequence" else False
    return Column(name, kind, primary_key=True, autoincrement=numbering)


def numbered(name: str) -> Iterator[Column[Any]]:
    """Yield the columns that keep rows in the order of creation, each with a *name* of its own."""
    yield key("sequence", WholeNumber)
    yield Column(name, String, nullable=False, unique=True)


def required(kind: Any, names: str) -> Iterator[Column[Any]]:
    """Yield the columns of *names*, in which every row has something."""
    return (Column(name, kind, nullable=False) for name in names.split())


def optional(kind: Any, names: str) -> Iterator[Column[Any]]:
    """Yield the columns of *names*, in which a row may have nothing."""
    return (Column(name, kind) for name in names.split())
