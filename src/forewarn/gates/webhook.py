"""A gate that somebody else decides about: a system of change tickets, say."""

import json
from dataclasses import replace
from datetime import timedelta
from typing import Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from forewarn.domain.gate import Question
from forewarn.gates.http import AddressGate
from forewarn.gates.verdict import GateVerdict, encode_question, shut, tidy
from forewarn.outbound.client import Outbound, OutboundRequest, Reply

LONGEST_RETRY_AFTER: Final = 86_400


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

    return AddressGate(outbound, write, _read)


def _read(reply: Reply) -> GateVerdict:
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
