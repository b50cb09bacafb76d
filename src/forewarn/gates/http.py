"""Gates that ask an address: what is sent, and what the answer says about the gate."""

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from forewarn.domain.gate import Question
from forewarn.gates.verdict import GateVerdict, encode_question, shut, tidy
from forewarn.outbound.client import NoAnswerError, Outbound, OutboundRequest, Reply

LONGEST_RETRY_AFTER: Final = 86_400


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


class WebhookAnswer(BaseModel):
    """What is read of the answer; *retry_after* is in seconds of maintenance time."""

    model_config = ConfigDict(frozen=True, strict=True)

    open: bool
    message: str = ""
    retry_after: float | None = Field(default=None, ge=1, le=LONGEST_RETRY_AFTER)


def webhook_gate(outbound: Outbound, request: OutboundRequest) -> AddressGate:
    """Return a gate that gets the question as JSON, and answers in JSON."""
    headers = {"Content-Type": "application/json", **request.headers}

    def write(question: Question) -> OutboundRequest:
        return replace(request, method="POST", headers=headers, body=encode_question(question))

    return AddressGate(outbound, write, _read_webhook)


def _read_webhook(reply: Reply) -> GateVerdict:
    if not reply.is_success:
        return shut(f"{reply.said}\n{reply.body}")
    try:
        answer = WebhookAnswer.model_validate(json.loads(reply.body))
    except (ValidationError, ValueError, RecursionError):
        return shut(f'The answer is not {{"open": true}} or {{"open": false}}: {reply.body}')
    seconds = answer.retry_after
    return GateVerdict(
        is_open=answer.open,
        output=tidy(answer.message),
        retry_after=None if seconds is None else timedelta(seconds=seconds),
    )
