"""`python -m forewarn.front.local`: a front process of `serve --fronts`.

It is told on its standard input what to do, and ends when that ends, so that it never outlives its
server. On its standard output it says again and again that it lives.
"""

import asyncio
import os
import signal
import socket
import sys
from contextlib import suppress

import forewarn.front.without_rich  # noqa: F401 - before anything else of ours

# isort: split

from forewarn.connections.event_loop import fastest_loop
from forewarn.feed.front_order import ALIVE, BEAT_SECONDS, SERVING, FrontOrder
from forewarn.feed.upstream import Upstream
from forewarn.front.front import Front
from forewarn.metadata.board import Board
from forewarn.metadata.identity import Identifier
from forewarn.telemetry.logs import configure_logging


def main() -> None:
    """Do as told, until the server hangs up."""
    order = FrontOrder.decode(sys.stdin.buffer.readline())
    configure_logging(order.log_format, order.log_level)
    with asyncio.Runner(loop_factory=fastest_loop()) as runner:
        runner.run(_run(order))


async def _run(order: FrontOrder) -> None:
    board = Board()
    identity = Identifier(
        board,
        default_vm=order.default_vm,
        trust_path=order.trust_path,
        trusted_proxies=order.trusted_proxies,
        proxy_secret=order.proxy_secret,
    )
    upstream = Upstream(url="http://localhost", token=lambda: order.secret, socket=order.server)
    front = Front(upstream, board, identity, is_prompt=True)
    ending = await _end_with_input(front)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, front.stop)
    listeners = [socket.socket(fileno=file) for file in order.listeners]
    with front.following():
        async with asyncio.TaskGroup() as group:
            beating = group.create_task(_beat(front))
            await front.until_whole()
            await front.serve(listeners)
            beating.cancel()
    ending.close()


async def _end_with_input(front: Front) -> asyncio.ReadTransport:
    """Have *front* stop when the server closes the other end, or dies."""
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: _LastWord(front), sys.stdin.buffer
    )
    return transport


class _LastWord(asyncio.Protocol):
    def __init__(self, front: Front) -> None:
        self._front = front

    def connection_lost(self, _: Exception | None) -> None:
        self._front.stop()


async def _beat(front: Front) -> None:
    """Say that all is well; a front that does not hear the server says nothing."""
    os.set_blocking(sys.stdout.fileno(), False)
    while True:
        with suppress(OSError):  # the server is dead, or has not listened for hours
            if not front.is_serving:
                os.write(sys.stdout.fileno(), ALIVE)
            elif front.follower.is_current:
                os.write(sys.stdout.fileno(), SERVING)
        await asyncio.sleep(BEAT_SECONDS)


if __name__ == "__main__":
    main()
