"""Gates that ask an address: what is sent, and what the answer says about the gate."""

from collections.abc import Callable
from datetime import datetime

from forewarn.domain.gate import Question
from forewarn.gates.verdict import GateVerdict, shut, tidy
from forewarn.outbound.client import NoAnswerError, Outbound, OutboundRequest, Reply


class AddressGate:
    """Sends what *write* makes of a question, and has *read* judge the answer."""

    def __init__(
        self,
        outbound: Outbound,
        write: Callable[[Question], OutboundRequest],
        read: Callable[[Reply], GateVerdict],
    ) -> None:
        self._outbound = outbound
        self._write = write
        self._read = read

    async def ask(self, question: Question, *, now: datetime) -> GateVerdict:
        """Send the question; without a whole answer in time the gate is shut."""
        try:
            reply = await self._outbound.send(self._write(question), now=now)
            return self._read(reply.whole())
        except NoAnswerError as error:
            return shut(str(error))

    def close(self) -> None:
        """Do nothing: a request ends by itself, or with the loop."""


def http_gate(
    outbound: Outbound, request: OutboundRequest, *, status: int | None = None, contains: str = ""
) -> AddressGate:
    """Return a gate: open if the status is *status*, or any 2xx, and the body has *contains*."""

    def read(reply: Reply) -> GateVerdict:
        is_right = reply.is_success if status is None else reply.status == status
        if is_right and contains not in reply.body:
            return shut(f"{reply.said}, without {contains!r}\n{reply.body}")
        return GateVerdict(is_open=is_right, output=tidy(f"{reply.said}\n{reply.body}"))

    return AddressGate(outbound, lambda _: request, read)
