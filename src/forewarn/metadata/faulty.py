"""Misbehaviour towards virtual machines that have a fault: docs/reference/faults.md.

In this order: a request is slow, then its connection is reset, or it is refused, or its body is
empty, or its document is altered. A fault that does not get its turn is not used up.
"""

import asyncio
from dataclasses import replace
from http import HTTPStatus

from forewarn.domain.topology import VirtualMachine
from forewarn.metadata.asgi import (
    DisconnectedError,
    Header,
    MetadataAnswer,
    MetadataRequest,
    answer_bytes,
)
from forewarn.metadata.board import Board, print_page
from forewarn.metadata.conditional import matches
from forewarn.metadata.waiting import first_of
from forewarn.ports.faults import UNKNOWN_TYPE, Fault, FaultKind, Faults
from forewarn.protocol.document import Document, encode_document
from forewarn.protocol.errors import error_body
from forewarn.protocol.versions import ApiVersion


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
        """Hold up a request, reset its connection, or refuse it; None lets it pass."""
        if not f"{request.path}/".startswith("/metadata/"):
            return None
        slow = self._faults.take(vm.name, FaultKind.SLOW)
        if slow is not None:
            await self._hold_up(request, slow.seconds)
        if self._faults.take(vm.name, FaultKind.RESET) is not None:
            request.connection["reset"]()
            await request.connection["lost"].wait()
            raise DisconnectedError
        refused = self._faults.take(vm.name, FaultKind.STATUS)
        return None if refused is None else _refuse(refused)

    async def _hold_up(self, request: MetadataRequest, seconds: float | None) -> None:
        # Not by way of `receive`, which would take the body from whoever reads it later.
        lost = request.connection["lost"]
        await first_of(self._stopping, lost, seconds=seconds)
        if lost.is_set():
            raise DisconnectedError

    def read(self, vm: VirtualMachine, version: str, if_none_match: bytes) -> MetadataAnswer:
        """Answer a poll: with nothing, or with what *vm* sees instead of its document."""
        if self._faults.take(vm.name, FaultKind.EMPTY_BODY) is not None:
            return MetadataAnswer()
        document = self._faults.show(vm.name, self._board.document(vm))
        unknown = self._faults.take(vm.name, FaultKind.UNKNOWN_TYPE)
        if unknown is not None:
            word = unknown.event_type or UNKNOWN_TYPE
            return answer_bytes(_encode_with_type(document, self._board.versions[version], word))
        page = print_page(document, self._board.versions[version])
        if matches(if_none_match, page.etag):
            return MetadataAnswer(status=304, headers=page.not_modified_headers)
        return MetadataAnswer(body=page.body, headers=page.headers)


def _refuse(fault: Fault) -> MetadataAnswer:
    status = HTTPStatus(fault.status or 500)
    answer = answer_bytes(error_body(status.phrase.capitalize()), status=status)
    if fault.retry_after is None:
        return answer
    retry_after: Header = (b"Retry-After", str(fault.retry_after).encode("ascii"))
    return replace(answer, headers=(*answer.headers, retry_after))


def _encode_with_type(document: Document, version: ApiVersion, word: str) -> bytes:
    events = tuple(
        replace(event, event_type=word)
        for event in document.events
        if event.event_type in version.event_types
    )
    knowing = replace(version, event_types=frozenset({word}))
    return encode_document(replace(document, events=events), knowing)
