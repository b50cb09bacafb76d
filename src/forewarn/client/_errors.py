"""What can go wrong with a metadata server.

ForewarnError
└ ClientError             the root of every error of this package
  ├ EndpointError         what was given as endpoint is none; nothing was sent
  ├ UnavailableError      no usable answer, though it was asked for again and again
  ├ RefusedError          the server understood, and asking again would not help
  └ ClosedError           the client was closed, before the call or during it
"""

from typing import Final

from forewarn.protocol.errors import ForewarnError

_LONGEST_SENTENCE: Final = 200


class ClientError(ForewarnError):
    """The root of every error of this package."""


class EndpointError(ClientError):
    """What was given as endpoint is none; nothing was sent."""


class UnavailableError(ClientError):
    """No usable answer, though it was asked for again and again.

    `trouble` says in words what was wrong the last time. `status` is that of the answer, if there
    was one, and `retry_after` how many seconds the server asked to be left alone.
    """

    def __init__(
        self,
        endpoint: str,
        trouble: str,
        *,
        status: int | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(f"No usable answer from {endpoint}: {trouble}.")
        self.endpoint = endpoint
        self.trouble = trouble
        self.status = status
        self.retry_after = retry_after


class RefusedError(ClientError):
    """The server understood, and asking again would not help.

    `sentence` is what it said, as it was sent; the message has only what can safely be shown.
    """

    def __init__(self, endpoint: str, status: int, sentence: str) -> None:
        reason = quote_sentence(sentence) if sentence else "no reason given"
        super().__init__(f"{endpoint} refused the request with {status}: {reason}.")
        self.endpoint = endpoint
        self.status = status
        self.sentence = sentence


class ClosedError(ClientError):
    """The client was closed, before the call or during it."""

    def __init__(self) -> None:
        super().__init__("This client is closed; create a new one.")


def quote_sentence(sentence: str) -> str:
    """Return what a server said in quotes, without line ends or terminal codes, and not long."""
    if len(sentence) > _LONGEST_SENTENCE:
        sentence = f"{sentence[:_LONGEST_SENTENCE]}…"
    return repr(sentence)
