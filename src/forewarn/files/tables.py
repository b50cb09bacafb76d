"""Files of tables that operators write for the server: one reader, and what their keys may be.

All mistakes of a file are refused at once, each with its line.
"""

import os
import re
import shutil
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Generic, Self, TypeAlias, TypeVar, get_args
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails, SchemaValidator, core_schema

from forewarn.domain.errors import DomainError
from forewarn.domain.names import check_name, name_key
from forewarn.files.toml import NotTomlError, TomlLines, decode, place
from forewarn.protocol.errors import ForewarnError
from forewarn.wording.durations import DurationError, format_duration, parse_duration
from forewarn.wording.invalid_values import say_invalid

MOST_MISTAKES: Final = 100
"""How many mistakes of one file are told."""
_SECOND: Final = timedelta(seconds=1)
_HINTS: Final[Mapping[str, str]] = {
    "tuple_type": "; in TOML, write [[{table}]]",
    "extra_forbidden": "; known keys: {known}",
}
"""What to do about what is wrong outside of tables."""
_URL: Final = re.compile(r"https?://[^/\s]+(/\S*)?")
_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


class TablesError(ForewarnError):
    """A file that cannot be used; each mistake is a line that begins with its place.

    *mistakes* has the number of the line and the sentence of each, if it could be read at all.
    """

    def __init__(self, problem: str, mistakes: Sequence[tuple[int | None, str]] = ()) -> None:
        super().__init__(problem)
        self.mistakes = tuple(mistakes)


class WrongKeyError(Exception):
    """What is wrong with *key* of a table; whoever knows the file says where that is."""

    def __init__(self, key: str, problem: str) -> None:
        super().__init__(problem)
        self.key = key


class Table(BaseModel):
    """A table that takes no other keys.

    A value of a wrong type is not repeated: it may be a secret. Checks of our own may repeat what
    never is one, such as a name or a duration.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class NamedTable(Table):
    """A table with a name that no other of its file has."""

    noun: ClassVar[str]
    """What it is a name for."""
    name: str

    @field_validator("name")
    @classmethod
    def _check_name(cls, name: str) -> str:
        try:
            check_name(name, cls.noun)
        except DomainError as error:
            raise ValueError(str(error)) from None
        return name


class SecretTable(Table):
    """A table with a secret, in it or in a file beside it."""

    secret: str | None = Field(default=None, min_length=1, repr=False)
    secret_file: Path | None = None

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        if self.secret is not None and self.secret_file is not None:
            raise ValueError("secret and secret_file cannot be used together")
        return self

    def find_secret(self, folder: Path) -> str | None:
        """Return the secret, if there is one; its file is looked for in *folder*."""
        if self.secret_file is None:
            return self.secret
        try:
            secret = (folder / self.secret_file).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise WrongKeyError("secret_file", f"the secret cannot be read: {error}") from None
        if not secret:
            raise WrongKeyError("secret_file", "the secret file is empty")
        return secret


M = TypeVar("M", bound=Table)
T = TypeVar("T", bound=Table)
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Mistake:
    """What is wrong with *key* of a [[table]], or outside of tables.

    *inner* is what it is within the key, such as "item 2"; *entry* is the name of the table.
    """

    problem: str
    key: str
    table: str = ""
    number: int = 0
    inner: tuple[str, ...] = ()
    entry: str = ""

    def find(self, lines: TomlLines) -> int | None:
        """Return the line it is on."""
        if not self.table:
            return lines.find_key(self.key)
        return lines.find(self.table, self.number, self.key)

    def __str__(self) -> str:
        entry = self.entry or (f"{self.table} {self.number + 1}" if self.table else "")
        what = " of ".join(filter(None, (*self.inner, self.key, entry)))
        return f"{what}: {self.problem[:1].lower()}{self.problem[1:].rstrip('.')}."


class TablesFile(Generic[M]):
    """A file that was read: its *content*, and the *folder* that paths in it are meant from."""

    def __init__(self, path: Path, text: str, model: type[M]) -> None:
        self._path = path
        self._text = text
        self.folder = path.parent.absolute()
        try:
            content = decode(text)
        except NotTomlError as error:
            mistake = (error.line, str(error))
            raise TablesError(f"{place(path, error.line)}: {error}", [mistake]) from error
        try:
            self.content = model.model_validate(content)
        except ValidationError as error:
            tables = model.model_fields
            found = [_read_mistake(each, tables, repeats=False) for each in error.errors()]
            raise self._refusal(found) from None

    def build(self, table: str, entries: Sequence[T], make: Callable[[T], R]) -> tuple[R, ...]:
        """Return what *make* makes of each of the [[table]] *entries*, or refuse all mistakes.

        It raises a `WrongKeyError` for a mistake that only shows then.
        """
        made, mistakes, names = [], [], set()
        for number, entry in enumerate(entries):
            try:
                if isinstance(entry, NamedTable):
                    if name_key(entry.name) in names:
                        raise WrongKeyError("name", f"{entry.name!r} is already defined")  # noqa: TRY301 - as those of make
                    names.add(name_key(entry.name))
                made.append(make(entry))
            except WrongKeyError as wrong:
                mistakes.append(Mistake(str(wrong), wrong.key, table, number))
        if mistakes:
            raise self._refusal(mistakes)
        return tuple(made)

    @cached_property
    def _lines(self) -> TomlLines:
        return TomlLines(self._text)

    def line_of(self, table: str, number: int) -> int:
        """Return the line on which that [[table]] begins."""
        return self._lines.find(table, number) or 0

    def _refusal(self, mistakes: Sequence[Mistake]) -> TablesError:
        told = [(each.find(self._lines), str(each)) for each in mistakes[:MOST_MISTAKES]]
        told.sort(key=lambda mistake: mistake[0] or 0)
        sentences = [f"{place(self._path, line)}: {sentence}" for line, sentence in told]
        if (more := len(mistakes) - MOST_MISTAKES) > 0:
            sentences.append(f"{self._path} has {more} more mistakes.")
        return TablesError("\n".join(sentences), told)


def read_tables(path: Path, model: type[M]) -> TablesFile[M]:
    """Return the file at *path*, which is like *model*, or refuse all mistakes in it."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise TablesError(f"{path} cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise TablesError(f"{path} cannot be read: it is not UTF-8 text.") from error
    return TablesFile(path, text, model)


def entry_reader(types: Mapping[str, Any], required: str) -> SchemaValidator:
    """Return what reads an entry that may have the keys of *types*, into a dict of those it has.

    It is much faster than a model.
    """
    keys = {
        key: core_schema.typed_dict_field(TypeAdapter(kind).core_schema, required=key == required)
        for key, kind in types.items()
    }
    return SchemaValidator(core_schema.typed_dict_schema(keys, extra_behavior="forbid"))


def examine(
    content: Mapping[str, Any], readers: Mapping[str, SchemaValidator], mistakes: list[Mistake]
) -> Iterator[tuple[str, int, dict[str, Any]]]:
    """Yield every entry of *content* with its table and number, as the *readers* of tables read it.

    What is wrong is put on the list of *mistakes*, and left out where the rest can be read. Entries
    are read one by one, so that a large content holds up nobody else.
    """
    for table, entries in content.items():
        if table not in readers or not isinstance(entries, list):
            kind = "tuple_type" if table in readers else "extra_forbidden"
            error = ErrorDetails(type=kind, loc=(table,), msg="", input=None)
            mistakes.append(_read_mistake(error, readers, repeats=False))
    for table, reader in readers.items():
        entries = content.get(table)
        for number, entry in enumerate(entries if isinstance(entries, list) else ()):
            try:
                read = reader.validate_python(entry)
            except ValidationError as refusal:
                found = []
                for error in refusal.errors():
                    error["loc"] = (table, number, *error["loc"])
                    mistake = _read_mistake(error, readers, repeats=True)
                    found.append(replace(mistake, entry=_name_of(entry)))
                mistakes += found
                read = _read_rest(reader, entry, {each.key for each in found})
            if read is not None:
                yield table, number, read


def _read_rest(reader: SchemaValidator, entry: object, wrong: Container[str]) -> Any:
    """Return *entry* without the keys that are *wrong*, or None if the rest is not enough."""
    if isinstance(entry, Mapping):
        with suppress(ValidationError):
            return reader.validate_python({key: entry[key] for key in entry if key not in wrong})
    return None


def _read_mistake(error: ErrorDetails, tables: Mapping[str, Any], *, repeats: bool) -> Mistake:
    problem = say_invalid(error, repeats=repeats)
    # A place is ("webhook", 0, "url"), ("gate", 0, "http", "url") or, outside of tables, ("x",).
    loc: tuple[str | int, ...] = (*error["loc"], "")
    table, number, *rest = loc
    if not isinstance(number, int):
        hint = _HINTS.get(error["type"], "").format(table=table, known=", ".join(tables))
        return Mistake(problem + hint, str(table))
    kinds = _kinds(tables[str(table)])
    if rest[0] in kinds:
        # pydantic names the model that it chose by the kind.
        del rest[0]
    if error["type"] == "union_tag_not_found":
        *kinds, last = kinds
        problem = f"write {', '.join(kinds)} or {last}"
    key = "kind" if error["type"].startswith("union_tag") else rest[0]
    inner = (f"item {each + 1}" if isinstance(each, int) else each for each in rest[-2:0:-1])
    return Mistake(problem, str(key), str(table), number, tuple(inner))


def _name_of(entry: object) -> str:
    name = entry.get("name") if isinstance(entry, Mapping) else None
    return name if isinstance(name, str) else ""


def _kinds(table: object) -> list[str]:
    """Return the kinds that a [[table]] of several can be of: pydantic names them only if wrong."""
    entry = get_args(table.annotation)[:1] if isinstance(table, FieldInfo) else ()
    choice = (each for kind in entry for union in get_args(kind)[:1] for each in get_args(union))
    return [kind for each in choice for kind in get_args(each.model_fields["kind"].annotation)]


def _check_address(url: str) -> str:
    if _URL.fullmatch(url) is None:
        raise ValueError("the URL must begin with http:// or https://")
    if not _has_host(url):
        raise ValueError("the host or port is invalid; in a password, write / as %2F and @ as %40")
    return url


def _has_host(url: str) -> bool:
    # What these errors say has parts of the URL in it, and those may be secrets.
    try:
        parts = urlsplit(url)
        host = (parts.hostname or "").encode("idna")
        return bool(host) and parts.port != 0
    except ValueError:
        return False


def is_plain(value: str) -> bool:
    """Tell whether *value* can be that of a header."""
    return value.isascii() and value.isprintable() and value == value.strip()


def _check_headers(headers: dict[str, str]) -> dict[str, str]:
    for name, value in headers.items():
        if not is_plain(value) or _HEADER_NAME.fullmatch(name) is None:
            raise ValueError(f"{name!r} is not a valid header, or its value is invalid")
    return headers


def _check_some(items: tuple[R, ...]) -> tuple[R, ...]:
    if not items:
        raise ValueError("it is empty")
    return items


def _check_word(word: str) -> str:
    if "\0" in word:
        raise ValueError("a command cannot contain NUL characters")
    return word


Address: TypeAlias = Annotated[str, AfterValidator(_check_address)]
Headers: TypeAlias = Annotated[dict[str, str], AfterValidator(_check_headers)]
Some = AfterValidator(_check_some)
"""What has to have an item. Pydantic's own length is also wrong where an item is."""
Words: TypeAlias = Annotated[tuple[Annotated[str, AfterValidator(_check_word)], ...], Some]
"""A program and its arguments."""


def duration(longest: timedelta | None = None, *, shortest: timedelta = _SECOND) -> BeforeValidator:
    """Return what reads a duration as people type it, from *shortest* to *longest*."""

    def read(value: object) -> timedelta:
        try:
            found = parse_duration(str(value))
        except DurationError as error:
            raise ValueError(str(error)) from None
        if longest is not None and not shortest <= found <= longest:
            bounds = f"{format_duration(shortest)} to {format_duration(longest)}"
            raise ValueError(f"it must be {bounds}")
        if found < shortest:
            raise ValueError("it must be longer than zero")
        return found

    return BeforeValidator(read)


def find_command(words: Words, folder: Path, search_path: str, key: str = "run") -> Words:
    """Return *words* with the path of their program; one with a slash is meant from *folder*.

    *key* has the words.
    """
    wanted = str(folder / words[0]) if os.sep in words[0] else words[0]
    program = shutil.which(wanted, path=search_path)
    if program is None:
        raise WrongKeyError(key, f"program not found or not executable: {words[0]!r}")
    return (program, *words[1:])
