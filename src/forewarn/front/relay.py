"""`python -m forewarn.front.relay SETTINGS`: the process that `forewarn relay` becomes.

It is a front that follows a server elsewhere, for one host, and remembers what it was told.
"""

import asyncio
import signal
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from socket import socket
from typing import Final

import forewarn.front.without_rich  # noqa: F401 - before anything else of ours

# isort: split

import structlog

from forewarn.environment import notify_socket
from forewarn.feed.feed_file import FeedFile
from forewarn.feed.frames import FeedLineError
from forewarn.feed.upstream import Upstream, UpstreamRefusedError
from forewarn.front.front import Front
from forewarn.front.listeners import open_listeners
from forewarn.front.record import FeedRecord
from forewarn.front.settings import RelaySettings
from forewarn.front.upstreams import open_upstream
from forewarn.metadata.board import Board
from forewarn.metadata.identity import Identifier
from forewarn.protocol.errors import ForewarnError
from forewarn.systemd import SystemdNotifier
from forewarn.telemetry.logs import configure_logging
from forewarn.transport.requests import MisnamedError, PlainServerError, UntrustedError

_NO_RELAY: Final = (
    "{server}: {error} A relay needs a token from forewarn token create --relay HOST."
)
_REFUSALS: Final[Mapping[int, str]] = {
    401: _NO_RELAY,
    403: _NO_RELAY,
    404: "{server} has no feed: it is not a forewarn server, or it is an older release.",
    421: "{server}: {error}",
}
_LASTING: Final[Mapping[type[Exception], str]] = {
    UntrustedError: "{server} has a certificate that is not trusted ({error}); set ca_file.",
    MisnamedError: "{server} has a certificate for other addresses ({error}).",
    PlainServerError: "{server} does not speak TLS; use http:// if it is on this machine.",
    FeedLineError: "{server}: {error}",
}
"""What does not go away by itself, and what to do about it."""
_READY_SECONDS: Final = 0.02

_log = structlog.get_logger(__name__)


class RelayError(ForewarnError):
    """A relay that cannot begin, and would not be able to later."""


def main() -> None:
    """Run a relay until it is told to stop, or say why it cannot."""
    settings = RelaySettings.decode(sys.argv[1])
    configure_logging(settings.log_format, settings.log_level)
    try:
        _run(settings)
    except ForewarnError as error:
        print(f"forewarn: {error}", file=sys.stderr)  # noqa: T201 - as every command says it
        sys.exit(1)


def _run(settings: RelaySettings) -> None:
    """Serve the virtual machines of this host until stopped."""
    upstream = open_upstream(settings.server, settings.token_file, settings.ca_file)
    with ExitStack() as stack:
        record = FeedRecord(stack.enter_context(FeedFile(settings.state_dir)))
        listeners = [stack.enter_context(each) for each in open_listeners(settings)]
        with asyncio.Runner() as runner:
            runner.run(_serve(settings, upstream, record, listeners))


async def _serve(
    settings: RelaySettings,
    upstream: Upstream,
    record: FeedRecord,
    listeners: list[socket],
) -> None:
    await Relay(settings, upstream, record).serve(listeners)


class Relay:
    """A front that is fed from its *record* first, and from the server as soon as that is there."""

    def __init__(self, settings: RelaySettings, upstream: Upstream, record: FeedRecord) -> None:
        self._settings = settings
        self._record = record
        self._board = board = Board()
        board.is_whole = False
        self._front = Front(
            upstream,
            board,
            Identifier(board),
            is_prompt=False,
            keep=lambda text, line: record.keep(self._front.mirror, text, line),
            troubled=self._give_up,
        )

    async def serve(self, listeners: list[socket]) -> None:
        """Answer on *listeners* until told to stop."""
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._front.stop)
        await asyncio.to_thread(self._recall)
        async with asyncio.TaskGroup() as group:
            telling = group.create_task(self._tell_ready())
            with self._front.following():
                _log.info(
                    "relaying", metadata=self._settings.metadata, server=self._settings.server
                )
                await self._front.serve(listeners)
            telling.cancel()
        _log.info("stopped")
        if self._front.failure is not None:
            raise self._front.failure

    def _recall(self) -> None:
        """Show what was told before this process began."""
        for line in self._record.lines:
            self._front.mirror.take(line)

    async def _tell_ready(self) -> None:
        """Tell systemd when guests are answered: from the record, or once the server has spoken."""
        while True:
            await asyncio.sleep(_READY_SECONDS)
            if self._board.is_whole and self._front.is_serving:
                break
        SystemdNotifier(notify_socket(), None).tell("READY=1")
        hello = self._front.mirror.hello
        host = None if hello is None else hello.host
        _log.info("serving_guests", host=host)
        if not self._board.parts[0]:
            _log.warning("no_virtual_machines", host=host)

    def _give_up(self, error: Exception) -> None:
        """End with a sentence if there is nothing to serve, and trying again does not help."""
        if self._board.is_whole:
            return
        problem = _explain(error, self._settings.server)
        if problem:
            raise RelayError(problem)


def _explain(error: Exception, server: str) -> str:
    """Return what to do about *error*, if it does not go away by itself."""
    if isinstance(error, UpstreamRefusedError):
        sentence = _REFUSALS.get(error.status, "")
    else:
        sentence = _LASTING.get(type(error), "")
    return sentence.format(server=server, error=error)


if __name__ == "__main__":
    main()
