"""The file of executors: which command or which webhook carries out what, where."""

import os
import shutil
import tomllib
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Final, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)
from pydantic_core import ErrorDetails

from forewarn.domain.webhook import is_header, is_url
from forewarn.executors.command import Command
from forewarn.executors.exchange import Target
from forewarn.executors.orders import LONGEST, Selection
from forewarn.operations.durations import DurationError, parse_duration
from forewarn.operations.toml_lines import key_line, place, syntax_line, table_line
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


def _check_word(word: str) -> str:
    if "\0" in word:
        raise ValueError("no word of a command can have a NUL in it")
    return word


def _check_url(url: str) -> str:
    if not is_url(url):
        raise ValueError("a webhook has a URL that begins with http:// or https://")
    return url


def _check_headers(headers: dict[str, str]) -> dict[str, str]:
    for name, value in headers.items():
        if not is_header(name, value):
            raise ValueError(f"{name!r} cannot be a header with such a value")
    return headers


class _Table(BaseModel):
    # What was given is not repeated in errors: it may be a secret.
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class _Selective(_Table):
    event_types: tuple[EventType, ...] = ()
    hosts: tuple[str, ...] = ()
    timeout: Annotated[timedelta, BeforeValidator(_read_duration)] = LONGEST

    @property
    def selection(self) -> Selection:
        """For which events and hosts it is meant."""
        return Selection(event_types=self.event_types, hosts=self.hosts)


class CommandTable(_Selective):
    """A program to run."""

    run: tuple[Annotated[str, AfterValidator(_check_word)], ...] = Field(min_length=1)


class WebhookTable(_Selective):
    """A target to post to."""

    url: Annotated[str, AfterValidator(_check_url)] = Field(repr=False)
    headers: Annotated[dict[str, str], AfterValidator(_check_headers)] = Field(
        default={}, repr=False
    )
    secret: str | None = Field(default=None, min_length=1, repr=False)
    secret_file: Path | None = None
    request_timeout: float = Field(default=10, gt=0, le=60)

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        if self.secret is not None and self.secret_file is not None:
            raise ValueError("it has a secret and a secret_file, and can only have one")
        return self


class ExecutorFile(_Table):
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
    name = table.run[0]
    # One with a slash is meant from where the file is, as paths in files are.
    wanted = str(file.path.parent.absolute() / name) if os.sep in name else name
    found = shutil.which(wanted, path=search_path)
    if found is None:
        problem = f"there is no program {name!r} that can be run"
        raise _problem(file.path, file.text, ("command", number, "run"), problem)
    return found


def _secret(file: _File, number: int, table: WebhookTable) -> str | None:
    if table.secret_file is None:
        return table.secret
    where = ("webhook", number, "secret_file")
    try:
        secret = (file.path.parent / table.secret_file).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        problem = f"the secret cannot be read: {error}"
        raise _problem(file.path, file.text, where, problem) from None
    if not secret:
        raise _problem(file.path, file.text, where, "there is no secret in the file")
    return secret


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
    return ExecutorFileError(f"{place(path, line)}: {table}: {_lower(problem)}.")


def _problem(path: Path, text: str, where: tuple[str, int, str], problem: str) -> ExecutorFileError:
    table, number, key = where
    what = f"{key} of {table} {number + 1}" if key else f"{table} {number + 1}"
    line = table_line(text, table, number, key)
    return ExecutorFileError(f"{place(path, line)}: {what}: {_lower(problem)}.")


def _lower(problem: str) -> str:
    return f"{problem[:1].lower()}{problem[1:]}".rstrip(".")
