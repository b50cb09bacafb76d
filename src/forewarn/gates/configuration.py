"""The file of gates: what can be asked between two steps. Nothing else names a program or address.

A gate runs what it says with the rights of the server, so no gate is ever taken from the API.
"""

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Annotated, ClassVar, Final, Literal, TypeAlias, assert_never

from pydantic import AfterValidator, Field

from forewarn.files.tables import (
    Address,
    Headers,
    NamedTable,
    SecretTable,
    Table,
    Words,
    duration,
    find_command,
    read_tables,
)
from forewarn.gates.asking import KnownGate
from forewarn.gates.command import CommandGate
from forewarn.gates.http import HttpGate
from forewarn.gates.prometheus import ExpectationError, PrometheusGate, read_expectation
from forewarn.gates.verdict import Gate
from forewarn.gates.webhook import WebhookGate

LONGEST_TIMEOUT: Final = timedelta(minutes=2)
LONGEST_EVERY: Final = timedelta(days=1)


def _check_expectation(text: str) -> str:
    try:
        read_expectation(text)
    except ExpectationError as error:
        raise ValueError(str(error)) from None
    return text


class _GateTable(NamedTable):
    noun: ClassVar = "gate"
    every: Annotated[timedelta, duration(LONGEST_EVERY)] = timedelta(seconds=30)
    timeout: Annotated[timedelta, duration(LONGEST_TIMEOUT)] = timedelta(seconds=10)


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
    """Return the gates of the file at *path*, or refuse all mistakes.

    Programs are found on the PATH of *environment*, and run in it.
    """
    if path is None:
        return {}
    file = read_tables(path, GatesFile)

    def make(table: AnyTable) -> tuple[str, KnownGate]:
        gate = _gate(table, file.folder, environment)
        return table.name, KnownGate(gate=gate, kind=table.kind, every=table.every)

    return dict(file.build("gate", file.content.gate, make))


def _gate(table: AnyTable, folder: Path, environment: Mapping[str, str]) -> Gate:
    match table:
        case CommandGateTable():
            return CommandGate(
                find_command(table.run, folder, environment.get("PATH", "")),
                timeout=table.timeout,
                environment=environment,
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
                secret=table.find_secret(folder),
            )
        case _:
            assert_never(table)
