"""A gate that is open while an address answers as it should."""

from collections.abc import Mapping
from datetime import datetime, timedelta

from forewarn.domain.gate import Question
from forewarn.gates.exchange import GateRequest, NoAnswerError, send
from forewarn.gates.verdict import GateVerdict, shut, tidy


class HttpGate:
    """Gets *url*: open if the status is *status*, or any 2xx, and the body contains *contains*."""

    def __init__(
        self,
        url: str,
        *,
        timeout: timedelta,
        headers: Mapping[str, str],
        status: int | None = None,
        contains: str = "",
    ) -> None:
        self._request = GateRequest(method="GET", url=url, timeout=timeout, headers=headers)
        self._status = status
        self._contains = contains

    def ask(self, question: Question, *, now: datetime) -> GateVerdict:  # noqa: ARG002 - the same for all
        """Look whether it answers as it should."""
        try:
            reply = send(self._request)
        except NoAnswerError as error:
            return shut(str(error))
        is_right = reply.is_success if self._status is None else reply.status == self._status
        if is_right and self._contains not in reply.body:
            return shut(f"{reply.said}, without {self._contains!r}\n{reply.body}")
        return GateVerdict(is_open=is_right, output=tidy(f"{reply.said}\n{reply.body}"))

    def close(self) -> None:
        """Do nothing: a request ends by itself."""
