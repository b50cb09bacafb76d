"""The file of gates: what can be asked between two steps. Nothing else names a program or address.

A gate runs what it says with the rights of the server, so no gate is ever taken from the API.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Final, Literal, TypeAlias, assert_never

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    ValidationError,
)
from pydantic_core import ErrorDetails

from forewarn.domain.errors import DomainError
from forewarn.domain.names import check_name, name_key
from forewarn.gates.asking import KnownGate
from forewarn.gates.command import CommandGate
from forewarn.gates.http import HttpGate
from forewarn.gates.prometheus import ExpectationError, PrometheusGate, read_expectation
from forewarn.gates.verdict import Gate
from forewarn.gates.webhook import WebhookGate
from forewarn.operations.durations import DurationError, format_duration, parse_duration
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

LONGEST_TIMEOUT: Final = timedelta(minutes=2)
LONGEST_EVERY: Final = timedelta(days=1)

_SECOND: Final = timedelta(seconds=1)


class GateFileError(ForewarnError):
    """A file of gates that cannot be used; the sentence begins with file and line."""


def _check_gate_name(name: str) -> str:
    try:
        check_name(name, "gate")
    except DomainError as error:
        raise ValueError(str(error)) from None
    return name


def _between(shortest: timedelta, longest: timedelta) -> BeforeValidator:
    def read(value: object) -> timedelta:
        try:
            duration = parse_duration(str(value))
        except DurationError as error:
            raise ValueError(str(error)) from None
        if not shortest <= duration <= longest:
            bounds = f"{format_duration(shortest)} to {format_duration(longest)}"
            raise ValueError(f"it can be {bounds}")
        return duration

    return BeforeValidator(read)


def _check_expectation(text: str) -> str:
    try:
        read_expectation(text)
    except ExpectationError as error:
        raise ValueError(str(error)) from None
    return text


class _GateTable(Table):
    name: Annotated[str, AfterValidator(_check_gate_name)]
    every: Annotated[timedelta, _between(_SECOND, LONGEST_EVERY)] = timedelta(seconds=30)
    timeout: Annotated[timedelta, _between(_SECOND, LONGEST_TIMEOUT)] = timedelta(seconds=10)


class CommandGateTable(_GateTable):
    """A program that ends with 0 while the gate is open."""

    kind: Literal["command"]
    run: Words = Field(min_length=1)


class _AddressTable(_GateTable):
    url: Address = Field(repr=False)
    headers: Headers = Field(default={}, repr=False)


class HttpTable(_AddressTable):
    """An address that answers as it should while the gate is open."""

    kind: Literal["http"]
    status: int | None = Field(default=None, ge=100, le=599)
    contains: str = ""


class PrometheusTable(_AddressTable):
    """A query whose values are what is expected while the gate is open."""

    kind: Literal["prometheus"]
    query: str = Field(min_length=1)
    expect: Annotated[str, AfterValidator(_check_expectation)]


class WebhookGateTable(_AddressTable, SecretTable):
    """An address that says whether the gate is open."""

    kind: Literal["webhook"]


AnyTable: TypeAlias = HttpTable | CommandGateTable | PrometheusTable | WebhookGateTable

KINDS: Final = ("http", "command", "prometheus", "webhook")


class GatesFile(Table):
    """All of the file."""

    gate: tuple[Annotated[AnyTable, Field(discriminator="kind")], ...] = ()


def read_gates(path: Path | None, environment: Mapping[str, str]) -> Mapping[str, KnownGate]:
    """Return the gates of the file at *path*, or refuse with the line that is wrong.

    Programs are found on the PATH of *environment*, and run in it.
    """
    if path is None:
        return {}
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise GateFileError(f"{path} cannot be read: {error}.") from error
    try:
        content = GatesFile(**tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        where = place(path, syntax_line(error))
        raise GateFileError(f"{where} is not TOML: {error}.") from error
    except ValidationError as error:
        raise _refusal(path, text, error.errors()[0]) from None
    return _build(_Folder(path.parent.absolute(), environment), path, text, content)


@dataclass(frozen=True, slots=True)
class _Folder:
    """Where the file is, and where programs find what they need."""

    path: Path
    environment: Mapping[str, str]

    @property
    def search_path(self) -> str:
        return self.environment.get("PATH", "")


def _build(folder: _Folder, path: Path, text: str, content: GatesFile) -> Mapping[str, KnownGate]:
    known: dict[str, KnownGate] = {}
    for number, table in enumerate(content.gate):
        if name_key(table.name) in map(name_key, known):
            raise _problem(path, text, number, "name", f"{table.name!r} is there already")
        try:
            gate = _gate(table, folder)
        except WrongKeyError as wrong:
            raise _problem(path, text, number, wrong.key, str(wrong)) from None
        known[table.name] = KnownGate(gate=gate, kind=table.kind, every=table.every)
    return known


def _gate(table: AnyTable, folder: _Folder) -> Gate:
    match table:
        case CommandGateTable():
            return CommandGate(
                (find_program(table.run, folder.path, folder.search_path), *table.run[1:]),
                timeout=table.timeout,
                environment=folder.environment,
            )
        case HttpTable():
            return HttpGate(
                table.url,
                timeout=table.timeout,
                headers=table.headers,
                status=table.status,
                contains=table.contains,
            )
        case PrometheusTable():
            return PrometheusGate(
                table.url,
                query=table.query,
                expectation=read_expectation(table.expect),
                timeout=table.timeout,
                headers=table.headers,
            )
        case WebhookGateTable():
            return WebhookGate(
                table.url,
                timeout=table.timeout,
                headers=table.headers,
                secret=table.find_secret(folder.path),
            )
        case _:
            assert_never(table)


_PROBLEMS: Final = {
    "extra_forbidden": "there is no such key",
    "missing": "it is missing",
    "too_short": "write a program and its arguments",
    "tuple_type": "write it as a list; gates are [[gate]]",
    "union_tag_invalid": f"write {', '.join(KINDS[:-1])} or {KINDS[-1]}",
    "union_tag_not_found": f"write {', '.join(KINDS[:-1])} or {KINDS[-1]}",
}
"""What is wrong, where pydantic's own words would say little to who wrote the file."""


def _refusal(path: Path, text: str, error: ErrorDetails) -> GateFileError:
    problem = _PROBLEMS.get(error["type"], error["msg"].removeprefix("Value error, "))
    # ("gate", 0, "http", "url"), or ("pigeon",)
    where = error["loc"]
    if where[:1] != ("gate",) or len(where) < 2:
        key = str(where[0])
        return GateFileError(f"{place(path, key_line(text, key))}: {key}: {as_clause(problem)}.")
    named = where[3:] if len(where) > 2 and where[2] in KINDS else where[2:]
    key = str(named[0]) if named else "kind" if error["type"].startswith("union_tag") else ""
    return _problem(path, text, int(where[1]), key, problem)


def _problem(path: Path, text: str, number: int, key: str, problem: str) -> GateFileError:
    what = f"{key} of gate {number + 1}" if key else f"gate {number + 1}"
    line = table_line(text, "gate", number, key)
    return GateFileError(f"{place(path, line)}: {what}: {as_clause(problem)}.")
