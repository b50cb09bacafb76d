"""A gate that somebody else decides about: a system of change tickets, say."""

import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from forewarn.domain.gate import Question
from forewarn.domain.webhook import SIGNATURE, sign
from forewarn.gates.exchange import GateRequest, NoAnswerError, Reply, send
from forewarn.gates.verdict import GateVerdict, encode_question, shut, tidy

LONGEST_RETRY_AFTER: Final = 86_400


class WebhookAnswer(BaseModel):
    """What is read of the answer; *retry_after* is in seconds of maintenance time."""

    model_config = ConfigDict(frozen=True, strict=True)

    open: bool
    message: str = ""
    retry_after: float | None = Field(default=None, ge=1, le=LONGEST_RETRY_AFTER)


class WebhookGate:
    """Posts the question to *url*, signed if there is a *secret*, and reads the answer."""

    def __init__(
        self, url: str, *, timeout: timedelta, headers: Mapping[str, str], secret: str | None
    ) -> None:
        self._url = url
        self._timeout = timeout
        self._headers = headers
        self._secret = secret

    def ask(self, question: Question, *, now: datetime) -> GateVerdict:
        """Put the question as JSON."""
        body = encode_question(question)
        signature = {} if self._secret is None else {SIGNATURE: sign(self._secret, body, now)}
        request = GateRequest(
            method="POST",
            url=self._url,
            timeout=self._timeout,
            headers={"Content-Type": "application/json", **self._headers, **signature},
            body=body,
        )
        try:
            reply = send(request)
        except NoAnswerError as error:
            return shut(str(error))
        if not reply.is_success:
            return shut(f"{reply.said}\n{reply.body}")
        return _read(reply)

    def close(self) -> None:
        """Do nothing: a request ends by itself."""


def _read(reply: Reply) -> GateVerdict:
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
