"""The file of executors: which command or which webhook carries out what, where."""

import tomllib
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Final, TypeVar

from pydantic import (
    BeforeValidator,
    Field,
    ValidationError,
)
from pydantic_core import ErrorDetails

from forewarn.executors.command import Command
from forewarn.executors.exchange import Target
from forewarn.executors.orders import LONGEST, Selection
from forewarn.operations.durations import DurationError, parse_duration
from forewarn.operations.toml_lines import key_line, place, syntax_line, table_line
from forewarn.operations.toml_tables import (
    Address,
    Headers,
    SecretTable,
    Table,
    Words,
    WrongKeyError,
    as_clause,
    find_program,
)
from forewarn.protocol.errors import ForewarnError
from forewarn.protocol.vocabulary import EventType

T = TypeVar("T")


class ExecutorFileError(ForewarnError):
    """A file of executors that cannot be used; the sentence begins with file and line."""


def _read_duration(value: object) -> timedelta:
    try:
        duration = parse_duration(str(value))
    except DurationError as error:
        raise ValueError(str(error)) from None
    if not duration:
        raise ValueError("nothing can be done in no time")
    return duration


class _Selective(Table):
    event_types: tuple[EventType, ...] = ()
    hosts: tuple[str, ...] = ()
    timeout: Annotated[timedelta, BeforeValidator(_read_duration)] = LONGEST

    @property
    def selection(self) -> Selection:
        """For which events and hosts it is meant."""
        return Selection(event_types=self.event_types, hosts=self.hosts)


class CommandTable(_Selective):
    """A program to run."""

    run: Words = Field(min_length=1)


class WebhookTable(_Selective, SecretTable):
    """A target to post to."""

    url: Address = Field(repr=False)
    headers: Headers = Field(default={}, repr=False)
    request_timeout: float = Field(default=10, gt=0, le=60)


class ExecutorFile(Table):
    """All of the file."""

    command: tuple[CommandTable, ...] = ()
    webhook: tuple[WebhookTable, ...] = ()


def read_commands(path: Path | None, search_path: str) -> tuple[Command, ...]:
    """Return the commands of the file at *path*, or refuse; programs are found on *search_path*."""
    file = _read(path)
    return tuple(
        Command(
            run=(_program(file, number, table, search_path), *table.run[1:]),
            selection=table.selection,
            timeout=table.timeout,
        )
        for number, table in enumerate(file.some(file.content.command, "command"))
    )


def read_targets(path: Path | None) -> tuple[Target, ...]:
    """Return the webhooks of the file at *path*, or refuse."""
    file = _read(path)
    return tuple(
        Target(
            url=table.url,
            headers=table.headers,
            secret=_secret(file, number, table),
            selection=table.selection,
            timeout=table.timeout,
            request_timeout=table.request_timeout,
        )
        for number, table in enumerate(file.some(file.content.webhook, "webhook"))
    )


@dataclass(frozen=True, slots=True)
class _File:
    path: Path
    text: str
    content: ExecutorFile

    def some(self, tables: tuple[T, ...], name: str) -> tuple[T, ...]:
        if not tables:
            raise ExecutorFileError(f"{self.path} has no [[{name}]].")
        return tables


def _read(path: Path | None) -> _File:
    if path is None:
        raise ExecutorFileError("This executor needs a file: give the setting executor_file.")
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ExecutorFileError(f"{path} cannot be read: {error}.") from error
    try:
        return _File(path, text, ExecutorFile(**tomllib.loads(text)))
    except tomllib.TOMLDecodeError as error:
        where = place(path, syntax_line(error))
        raise ExecutorFileError(f"{where} is not TOML: {error}.") from error
    except ValidationError as error:
        raise _refusal(path, text, error.errors()[0]) from None


def _program(file: _File, number: int, table: CommandTable, search_path: str) -> str:
    try:
        return find_program(table.run, file.path.parent.absolute(), search_path)
    except WrongKeyError as wrong:
        where = ("command", number, wrong.key)
        raise _problem(file.path, file.text, where, str(wrong)) from None


def _secret(file: _File, number: int, table: WebhookTable) -> str | None:
    try:
        return table.find_secret(file.path.parent)
    except WrongKeyError as wrong:
        where = ("webhook", number, wrong.key)
        raise _problem(file.path, file.text, where, str(wrong)) from None


_PROBLEMS: Final = {
    "extra_forbidden": "there is no such key",
    "missing": "it is missing",
    "tuple_type": "write it as a list",
    "too_short": "write a program and its arguments",
}
"""What is wrong, where pydantic's own words would say little to who wrote the file."""


def _refusal(path: Path, text: str, error: ErrorDetails) -> ExecutorFileError:
    problem = _PROBLEMS.get(error["type"], error["msg"].removeprefix("Value error, "))
    # ("webhook", 0, "url"), ("command", 0, "run", 1), or ("pigeon",)
    table, number, key = (*error["loc"], "", "")[:3]
    if isinstance(number, int):
        return _problem(path, text, (str(table), number, str(key)), problem)
    line = key_line(text, str(table))
    return ExecutorFileError(f"{place(path, line)}: {table}: {as_clause(problem)}.")


def _problem(path: Path, text: str, where: tuple[str, int, str], problem: str) -> ExecutorFileError:
    table, number, key = where
    what = f"{key} of {table} {number + 1}" if key else f"{table} {number + 1}"
    line = table_line(text, table, number, key)
    return ExecutorFileError(f"{place(path, line)}: {what}: {as_clause(problem)}.")
