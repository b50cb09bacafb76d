"""A gate that is open while what Prometheus has measured is as it should be."""

import json
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from forewarn.gates.http import AddressGate
from forewarn.gates.verdict import GateVerdict, shut, tidy
from forewarn.outbound.client import Outbound, OutboundRequest, Reply
from forewarn.protocol.errors import ForewarnError

_COMPARISONS: Final[Mapping[str, Callable[[float, float], bool]]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    "<": operator.lt,
}
_MOST_LINES: Final = 20


class ExpectationError(ForewarnError):
    """Something that is no comparison with a number."""

    def __init__(self, text: str) -> None:
        super().__init__(f"{text!r} compares with no number; write something like '> 0.99'.")


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
    try:
        return Expectation(match[1], float(match[2])) if match else _refuse(text)
    except ValueError:
        return _refuse(text)


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
        return shut(f"This is not how Prometheus answers: {reply.said}\n{reply.body}")
    if not values:
        return shut("The query has no result.")
    wrong = [line for line, value in values if not expectation.is_met(value)]
    if wrong:
        return shut("\n".join((f"Not {expectation}:", *wrong[:_MOST_LINES])))
    return GateVerdict(
        is_open=True, output=tidy("\n".join(line for line, _ in values[:_MOST_LINES]))
    )


def _refuse(text: str) -> Expectation:
    raise ExpectationError(text)


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
