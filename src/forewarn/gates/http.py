"""Gates that ask an address: what is sent, and what the answer says about the gate.

That of Prometheus is open while what was measured is as it should be.
"""

import json
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from forewarn.domain.gate import Question
from forewarn.gates.verdict import GateVerdict, encode_question, shut, tidy
from forewarn.outbound.client import NoAnswerError, Outbound, OutboundRequest, Reply
from forewarn.protocol.errors import ForewarnError

LONGEST_RETRY_AFTER: Final = 86_400
_COMPARISONS: Final[Mapping[str, Callable[[float, float], bool]]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    "<": operator.lt,
}
_MOST_LINES: Final = 20


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class AddressGate:
    """Sends what *write* makes of a question, and has *read* judge the answer."""

    outbound: Outbound
    write: Callable[[Question], OutboundRequest]
    read: Callable[[Reply], GateVerdict]

    async def ask(self, question: Question, *, now: datetime) -> GateVerdict:
        """Send the question; without a whole answer in time the gate is shut."""
        try:
            reply = await self.outbound.send(self.write(question), now=now)
            return self.read(reply.whole())
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


class ExpectationError(ForewarnError):
    """Something that is no comparison with a number."""

    def __init__(self, text: str) -> None:
        super().__init__(f"{text!r} is not a valid comparison; use, for example, '> 0.99'.")


@dataclass(frozen=True, slots=True)
class Expectation:
    """What every value must be like."""

    comparison: str
    limit: float

    def is_met(self, value: float) -> bool:
        """Tell whether *value* is like that; what is no number never is."""
        return value == value and _COMPARISONS[self.comparison](value, self.limit)  # noqa: PLR0124 - NaN is not

    def __str__(self) -> str:
        return f"{self.comparison} {self.limit:g}"


def read_expectation(text: str) -> Expectation:
    """Return what *text* says, such as `> 0.99`."""
    match = re.fullmatch(r"\s*(>=|<=|==|!=|>|<)\s*([-+]?[0-9.]+(?:[eE][-+]?[0-9]+)?)\s*", text)
    with suppress(ValueError):
        if match:
            return Expectation(match[1], float(match[2]))
    raise ExpectationError(text)


def prometheus_gate(
    outbound: Outbound, request: OutboundRequest, *, query: str, expectation: Expectation
) -> AddressGate:
    """Return a gate that puts an instant *query* to the Prometheus at the address of *request*.

    Open if there is a result and every value in it is what *expectation* says.
    """
    url = f"{request.url.rstrip('/')}/api/v1/query"
    asked = replace(request, url=url, parameters={"query": query})
    return AddressGate(outbound, lambda _: asked, lambda reply: _judge(reply, expectation))


def _judge(reply: Reply, expectation: Expectation) -> GateVerdict:
    try:
        values = list(_values(reply))
    except (LookupError, TypeError, ValueError):
        return shut(f"Unexpected response from Prometheus: {reply.said}\n{reply.body}")
    if not values:
        return shut("The query returned no result.")
    wrong = [line for line, value in values if not expectation.is_met(value)]
    if wrong:
        return shut("\n".join((f"Expected {expectation}, but got:", *wrong[:_MOST_LINES])))
    return GateVerdict(
        is_open=True, output=tidy("\n".join(line for line, _ in values[:_MOST_LINES]))
    )


def _values(reply: Reply) -> Iterator[tuple[str, float]]:
    """Yield each value of an instant vector or scalar, and a line that shows it."""
    content: Any = json.loads(reply.body)
    if content["status"] != "success":
        raise ValueError(content)
    kind, result = content["data"]["resultType"], content["data"]["result"]
    if kind == "scalar":
        yield str(result[1]), float(result[1])
    elif kind == "vector":
        for sample in result:
            labels = ", ".join(f'{name}="{value}"' for name, value in sample["metric"].items())
            text = sample["value"][1]
            yield f"{{{labels}}} {text}" if labels else text, float(text)
    else:
        raise ValueError(kind)
