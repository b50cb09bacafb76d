"""How answers are written: in one piece, with header names in the case that Azure writes them in.

uvicorn would write them in lower case, and the head apart from the body.
"""

from typing import Any

from forewarn.connections.guarded import shared_lines
from forewarn.connections.uvicorn_parts import STATUS_LINE, RequestResponseCycle
from forewarn.metadata.asgi import CLOSE, HttpScope, Receive, Send, SentMessage


def written_by_us(app: Any, cycle: RequestResponseCycle) -> Any:
    """Return *app* as one whose answer in *cycle* does not pass through uvicorn's hands."""

    async def answer(scope: HttpScope, receive: Receive, _send: Send) -> None:
        await app(scope, receive, _writer_of(cycle))

    return answer


def _writer_of(cycle: RequestResponseCycle) -> Send:
    head: list[bytes] = []

    async def send(message: SentMessage) -> None:
        if message["type"] == "http.response.start":
            head.append(_write_head(cycle, message))
            return
        if cycle.flow.write_paused and not cycle.disconnected:
            await cycle.flow.drain()
        if not cycle.disconnected:
            body = b"" if cycle.scope["method"] == "HEAD" else message["body"]
            cycle.transport.write(head[0] + body)
            _finish(cycle)

    return send


def _write_head(cycle: RequestResponseCycle, message: SentMessage) -> bytes:
    headers = list(message["headers"])
    if CLOSE in headers:
        cycle.keep_alive = False
    elif not cycle.keep_alive:
        headers.append(CLOSE)
    lines = (name + b": " + value + b"\r\n" for name, value in headers)
    return b"".join(
        (STATUS_LINE[message["status"]], *lines, shared_lines(cycle.default_headers), b"\r\n")
    )


def _finish(cycle: RequestResponseCycle) -> None:
    cycle.response_started = cycle.response_complete = True
    cycle.waiting_for_100_continue = False
    cycle.message_event.set()
    if not cycle.keep_alive:
        cycle.transport.close()
    cycle.on_response()
