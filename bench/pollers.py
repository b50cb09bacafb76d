"""Virtual machines that poll, as a process of their own: what wrk cannot be.

They come from many addresses of loopback, close a connection without having said so, keep a steady
pace, or wait for a change. The figures are printed as JSON. Times are those of the monotonic clock,
which all processes of a machine share.
"""

import argparse
import json
import select
import socket
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import cycle, islice
from typing import Final

BATCH: Final = 64
"""As many as wrk has connections."""
NO_PORT_YET: Final = 24
"""IP_BIND_ADDRESS_NO_PORT: the kernel chooses a port that is free with the other end."""
ANSWER_SECONDS: Final = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Polling:
    """Who polls what, from where."""

    port: int
    sources: Sequence[str]
    requests: Sequence[bytes]
    seconds: float

    def connect(self, number: int) -> socket.socket:
        """Return a connection from one of the sources."""
        connection = socket.socket()
        connection.setsockopt(socket.IPPROTO_IP, NO_PORT_YET, 1)
        connection.bind((self.sources[number % len(self.sources)], 0))
        connection.settimeout(ANSWER_SECONDS)
        connection.connect(("127.0.0.1", self.port))
        return connection

    def request(self, number: int) -> bytes:
        """Return what is sent on that connection."""
        return self.requests[number % len(self.requests)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=KINDS)
    told = json.loads(sys.stdin.readline())
    options = parser.parse_args()
    polling = Polling(
        port=told["port"],
        sources=told["sources"],
        requests=[each.encode() for each in told["requests"]],
        seconds=told["seconds"],
    )
    for figures in KINDS[options.kind](polling):
        print(json.dumps(figures), flush=True)


def _poll_on_kept(polling: Polling) -> Iterator[Mapping[str, float]]:
    """Poll on a connection from each source, sixty-four at a time."""
    kept = list[socket.socket]()
    length = 0
    for number in range(len(polling.sources)):
        kept.append(polling.connect(number))
        # What is done once for each is done now; and who connects must not be silent for long.
        length = _exchange(kept[-1], polling.request(number), length)
    yield {}
    polls, began = 0, time.monotonic()
    numbers = cycle(range(len(kept)))
    while time.monotonic() - began < polling.seconds:
        batch = tuple(islice(numbers, BATCH))
        for number in batch:
            kept[number].sendall(polling.request(number))
        for number in batch:
            _receive(kept[number], length)
        polls += len(batch)
    yield {"polls": polls, "seconds": time.monotonic() - began}


def _poll_with_a_connection_each(polling: Polling) -> Iterator[Mapping[str, float]]:
    """Poll like curl: connect, ask, read the answer, close without a word about it."""
    with polling.connect(0) as first:
        length = _exchange(first, polling.request(0))
    yield {}
    polls, began = 0, time.monotonic()
    while time.monotonic() - began < polling.seconds:
        batch = [polling.connect(polls + each) for each in range(BATCH)]
        for each, connection in enumerate(batch):
            connection.sendall(polling.request(polls + each))
        for connection in batch:
            _receive(connection, length)
            connection.close()
        polls += BATCH
    yield {"polls": polls, "seconds": time.monotonic() - began}


def _poll_at_a_pace(polling: Polling) -> Iterator[Mapping[str, Sequence[float]]]:
    """Poll every millisecond, until told on stdin to stop; a poll that is held up is late."""
    kept = [polling.connect(number) for number in range(min(len(polling.sources), BATCH))]
    length = _exchange(kept[0], polling.request(0))
    yield {}
    began, times = list[float](), list[float]()
    due = time.monotonic()
    for number in cycle(range(len(kept))):
        now = time.monotonic()
        if now < due:
            time.sleep(due - now)
            due = time.monotonic()
        _exchange(kept[number], polling.request(number), length)
        began.append(due)
        times.append(time.monotonic() - due)
        due += 0.001
        if number == 0 and select.select((sys.stdin,), (), (), 0)[0]:
            break
    yield {"began": began, "times": times}


def _poll_seldom(polling: Polling, *, keeps: bool = False) -> Iterator[Mapping[str, float]]:
    """Poll once a second from each source, with a connection each or one that it *keeps*."""
    number_of = range(len(polling.sources) if keeps else 0)
    kept = [polling.connect(number) for number in number_of]
    yield {}
    polls, began = 0, time.monotonic()
    for number in cycle(range(len(polling.sources))):
        time.sleep(max(0.0, began + polls / len(polling.sources) - time.monotonic()))
        if time.monotonic() - began > polling.seconds:
            break
        connection = kept[number] if keeps else polling.connect(number)
        _exchange(connection, polling.request(number))
        if not keeps:
            connection.close()
        polls += 1
    yield {"polls": polls, "seconds": time.monotonic() - began}


def _park(polling: Polling) -> Iterator[Mapping[str, Sequence[float]]]:
    """Wait on a connection for each request, again whenever all have been answered."""
    kept = {}
    with select.epoll() as epoll:
        for number in range(len(polling.requests)):
            connection = polling.connect(number)
            kept[connection.fileno()] = connection
            epoll.register(connection, select.EPOLLIN)
        requests = dict(zip(kept, polling.requests, strict=True))
        while True:
            for file, connection in kept.items():
                connection.sendall(requests[file])
            yield {}
            answers = dict(_answers(epoll, kept))
            yield {"answered": [at for at, _ in answers.values()]}
            requests = {
                file: _with_etag(requests[file], answer) for file, (_, answer) in answers.items()
            }


def _answers(
    epoll: select.epoll, kept: Mapping[int, socket.socket]
) -> Iterator[tuple[int, tuple[float, bytes]]]:
    left = len(kept)
    while left:
        ready = epoll.poll(ANSWER_SECONDS)
        if not ready:
            raise SystemExit(f"{left} of {len(kept)} waiting polls were not answered")
        for file, _ in ready:
            answer = kept[file].recv(65_536)
            if not answer.startswith(b"HTTP/1.1 200") or not answer.endswith(b"}"):
                raise SystemExit(f"a waiting poll was answered {answer!r}")
            yield file, (time.monotonic(), answer)
            left -= 1


def _with_etag(request: bytes, answer: bytes) -> bytes:
    """Return *request* for what comes after *answer*."""
    etag = answer.partition(b"\r\nETag: ")[2].partition(b"\r\n")[0]
    head, _, rest = request.partition(b"If-None-Match: ")
    return b"".join((head, b"If-None-Match: ", etag, b"\r\n", rest.partition(b"\r\n")[2]))


def _exchange(connection: socket.socket, request: bytes, length: int = 0) -> int:
    connection.sendall(request)
    return _receive(connection, length)


def _receive(connection: socket.socket, length: int) -> int:
    """Read an answer of *length* bytes; return how many there were."""
    answer = connection.recv(65_536)
    while 0 < len(answer) < length:
        more = connection.recv(65_536)
        if not more:
            break
        answer += more
    if not answer.startswith(b"HTTP/1.1 200") or (length and len(answer) != length):
        raise SystemExit(f"a poll was answered {answer!r}, not with {length} bytes")
    return len(answer)


KINDS: Final[Mapping[str, Callable[[Polling], Iterable[object]]]] = {
    "kept": _poll_on_kept,
    "each": _poll_with_a_connection_each,
    "pace": _poll_at_a_pace,
    "seldom": _poll_seldom,
    "seldom on kept": partial(_poll_seldom, keeps=True),
    "park": _park,
}

if __name__ == "__main__":
    main()
