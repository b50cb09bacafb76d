"""Misbehaviour towards virtual machines that have a fault: docs/reference/faults.md.

In this order: a request is slow, then its connection is reset, or it gets another answer in place
of its own. Else it is carried out: a poll reads nothing, or an altered document. Then its answer is
lost, or damaged. A fault that does not get its turn is not used up.
"""

import asyncio
from math import ceil
from typing import Final, NoReturn

from forewarn.domain.fault import Fault, FaultKind
from forewarn.domain.topology import VirtualMachine
from forewarn.metadata.asgi import (
    Connection,
    DisconnectedError,
    MetadataAnswer,
    MetadataRequest,
    Send,
    answer_json,
)
from forewarn.metadata.board import Board, print_page
from forewarn.metadata.conditional import matches
from forewarn.metadata.faulty_answers import (
    ALTERATIONS,
    DAMAGES,
    REPLACEMENTS,
    alter_document,
    can_be_damaged,
)
from forewarn.metadata.waiting import first_of
from forewarn.ports.faults import Faults
from forewarn.protocol.document import write_document
from forewarn.protocol.versions import VERSIONS_BY_NAME

_DRIP_SECONDS: Final = 0.01
"""How soon one drop follows another at most: shorter pauses would cost more than they take."""


class Faulty:
    """Answers in place of the endpoint, where a fault wants it."""

    def __init__(self, faults: Faults, board: Board) -> None:
        self._faults = faults
        self._board = board
        self._stopping = asyncio.Event()

    def stop_waiting(self) -> None:
        """Be slow no longer."""
        self._stopping.set()

    async def interfere(
        self, request: MetadataRequest, vm: VirtualMachine
    ) -> MetadataAnswer | None:
        """Hold up a request, reset its connection, or answer something else; None lets it pass."""
        if not f"{request.path}/".startswith("/metadata/"):
            return None
        slow = self._faults.take(vm.name, FaultKind.SLOW)
        if slow is not None:
            await self._hold_up(request.connection, slow.seconds)
            if request.connection["lost"].is_set():
                raise DisconnectedError
        if self._faults.take(vm.name, FaultKind.RESET) is not None:
            await _reset(request.connection)
        for kind, make in REPLACEMENTS.items():
            fault = self._faults.take(vm.name, kind)
            if fault is not None:
                return make(fault)
        if request.method != "POST":
            return None
        fault = self._faults.take(vm.name, FaultKind.FAILED_POST)
        if fault is not None and fault.status is None:
            await _reset(request.connection)
        return None if fault is None else REPLACEMENTS[FaultKind.STATUS](fault)

    def read(self, vm: VirtualMachine, version: str, if_none_match: bytes) -> MetadataAnswer:
        """Answer a poll: with nothing, or with what *vm* sees instead of its document."""
        nothing = self.read_nothing(vm)
        if nothing is not None:
            return nothing
        document = self._faults.show(vm.name, self._board.document(vm))
        api_version = VERSIONS_BY_NAME[version]
        taken = {kind: self._faults.take(vm.name, kind) for kind in ALTERATIONS}
        altering = {kind: fault for kind, fault in taken.items() if fault is not None}
        if altering:
            return answer_json(alter_document(write_document(document, api_version), altering))
        page = print_page(document, api_version)
        if matches(if_none_match, page.etag):
            return MetadataAnswer(status=304, headers=page.not_modified_headers)
        return MetadataAnswer(body=page.body, headers=page.headers)

    def read_nothing(self, vm: VirtualMachine) -> MetadataAnswer | None:
        """Answer a poll with nothing, if *vm* is to have that."""
        fault = self._faults.take(vm.name, FaultKind.EMPTY_BODY)
        return None if fault is None else MetadataAnswer()

    async def damage(
        self, answer: MetadataAnswer, request: MetadataRequest, vm: VirtualMachine
    ) -> MetadataAnswer:
        """Return what arrives of *answer*, or close the connection without it."""
        if self._faults.take(vm.name, FaultKind.CLOSE) is not None:
            request.connection["close"]()
            await _leave(request.connection)
        for kind, alter in DAMAGES.items():
            fault = self._take_for(answer, vm, kind)
            if fault is not None:
                answer = alter(answer, fault)
        return answer

    async def drip(self, answer: MetadataAnswer, connection: Connection, send: Send) -> bytes:
        """Send a body a few bytes at a time, but for the last of them, which are returned."""
        pieces = min(len(answer.body), max(1, round(answer.seconds / _DRIP_SECONDS)))
        size = ceil(len(answer.body) / pieces)
        rest = answer.body
        while len(rest) > size:
            await send({"type": "http.response.body", "body": rest[:size], "more_body": True})
            await self._hold_up(connection, answer.seconds * size / len(answer.body))
            rest = rest[size:]
        return rest

    def _take_for(
        self, answer: MetadataAnswer, vm: VirtualMachine, kind: FaultKind
    ) -> Fault | None:
        return self._faults.take(vm.name, kind) if can_be_damaged(answer, kind) else None

    async def _hold_up(self, connection: Connection, seconds: float | None) -> None:
        # Not by way of `receive`, which would take the body from whoever reads it later.
        await first_of(self._stopping, connection["lost"], seconds=seconds)


async def _reset(connection: Connection) -> NoReturn:
    connection["reset"]()
    await _leave(connection)


async def _leave(connection: Connection) -> NoReturn:
    await connection["lost"].wait()
    raise DisconnectedError
