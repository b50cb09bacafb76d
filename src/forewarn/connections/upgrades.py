"""HTTP/1.1 that stays HTTP/1.1, whatever a client would rather speak."""

import httptools

from forewarn.connections.uvicorn_parts import HttpToolsProtocol
from forewarn.protocol.errors import ForewarnError


class TunnelError(ForewarnError):
    """A CONNECT: what follows it would not be ours to read."""


class NoUpgradeProtocol(HttpToolsProtocol):
    """Answers a request with `Upgrade` as if it did not have it, body and all (RFC 9110, 7.8).

    The parser takes what follows such a head for another protocol. So the head is parsed a second
    time without its `Upgrade`, by a fresh parser that goes on with the body.
    """

    def feed(self, data: bytes) -> None:
        """Parse *data*; raise HttpParserError if that is no HTTP."""
        rest: bytes | memoryview = data
        while rest:
            try:
                self.parser.feed_data(rest)
            except httptools.HttpParserUpgrade as upgrade:
                rest = memoryview(rest)[upgrade.args[0] :]
                self._parse_again()
            else:
                return

    def on_headers_complete(self) -> None:
        if self.parser.should_upgrade():
            if self.parser.get_method() == b"CONNECT":
                raise TunnelError
        else:
            self.on_head_complete()

    def on_message_complete(self) -> None:
        if not self.parser.should_upgrade():
            self.on_request_complete()

    def on_head_complete(self) -> None:
        """Begin to answer; the body may be still to come."""
        super().on_headers_complete()

    def on_request_complete(self) -> None:
        """Take note that the whole body is there."""
        super().on_message_complete()

    def _parse_again(self) -> None:
        first = b"%b %b HTTP/%b" % (
            self.parser.get_method(),
            self.url,
            self.parser.get_http_version().encode("ascii"),
        )
        lines = (name + b": " + value for name, value in self.headers if name != b"upgrade")
        head = b"\r\n".join((first, *lines, b"", b""))
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self.parser.feed_data(head)
