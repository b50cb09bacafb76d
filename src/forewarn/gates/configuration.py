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
from forewarn.gates.asked_gates import KnownGate
from forewarn.gates.command import CommandGate
from forewarn.gates.http import (
    ExpectationError,
    http_gate,
    prometheus_gate,
    read_expectation,
    webhook_gate,
)
from forewarn.gates.verdict import Gate
from forewarn.outbound.client import Outbound, OutboundRequest

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
    run: Words


class _AddressTable(_GateTable):
    url: Address = Field(repr=False)
    headers: Headers = Field(default={}, repr=False)

    def request(self, secret: str | None = None) -> OutboundRequest:
        """Return what every question to this address has in common."""
        return OutboundRequest(
            method="GET",
            url=self.url,
            timeout=self.timeout.total_seconds(),
            headers=self.headers,
            secret=secret,
        )


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


class GatesFile(Table):
    """All of the file."""

    gate: tuple[Annotated[AnyTable, Field(discriminator="kind")], ...] = ()


def read_gates(
    path: Path | None, environment: Mapping[str, str], outbound: Outbound
) -> Mapping[str, KnownGate]:
    """Return the gates of the file at *path*, or refuse all mistakes.

    Programs are found on the PATH of *environment*, and run in it.
    """
    if path is None:
        return {}
    file = read_tables(path, GatesFile)

    def make(table: AnyTable) -> tuple[str, KnownGate]:
        if isinstance(table, CommandGateTable):
            run = find_command(table.run, file.folder, environment.get("PATH", ""))
            gate: Gate = CommandGate(run, timeout=table.timeout, environment=environment)
        else:
            gate = _address_gate(table, outbound, file.folder)
        return table.name, KnownGate(gate=gate, kind=table.kind, every=table.every)

    return dict(file.build("gate", file.content.gate, make))


def _address_gate(
    table: HttpTable | PrometheusTable | WebhookGateTable, outbound: Outbound, folder: Path
) -> Gate:
    match table:
        case HttpTable(status=status, contains=contains):
            return http_gate(outbound, table.request(), status=status, contains=contains)
        case PrometheusTable(query=query):
            expectation = read_expectation(table.expect)
            return prometheus_gate(outbound, table.request(), query=query, expectation=expectation)
        case WebhookGateTable():
            return webhook_gate(outbound, table.request(table.find_secret(folder)))
        case _:
            assert_never(table)
