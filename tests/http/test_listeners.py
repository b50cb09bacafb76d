import errno
import socket
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from tests.needs import need_ipv6

from forewarn.bootstrap.listening import Listeners, open_listeners
from forewarn.bootstrap.start import StartError
from forewarn.connections.listeners import twin_of
from forewarn.metadata.http import open_listener
from forewarn.settings import make_settings

CONNECTIONS = 60


def accept_all(listener: socket.socket) -> int:
    """Return how many connections were waiting."""
    number = 0
    while True:
        try:
            listener.accept()[0].close()
        except BlockingIOError:
            return number
        number += 1


@pytest.mark.parametrize(
    ("host", "reached_at"), [("127.0.0.1", "127.0.0.1"), ("::1", "::1"), ("::", "127.0.0.1")]
)
def test_twins_share_the_connections(host: str, reached_at: str) -> None:
    if ":" in host:
        need_ipv6()
    with ExitStack() as stack:
        first = stack.enter_context(open_listener(host, 0))
        twins = [first, *(stack.enter_context(twin_of(first)) for _ in range(2))]
        for _ in range(CONNECTIONS):
            stack.enter_context(
                closing(socket.create_connection((reached_at, first.getsockname()[1])))
            )

        numbers = [accept_all(each) for each in twins]

    assert sum(numbers) == CONNECTIONS
    assert all(numbers)


def test_twin_has_the_options_of_the_first() -> None:
    options = [
        (socket.IPPROTO_TCP, socket.TCP_NODELAY),
        (socket.SOL_SOCKET, socket.SO_RCVBUF),
        (socket.SOL_SOCKET, socket.SO_REUSEPORT),
    ]

    with open_listener("127.0.0.1", 0) as first, twin_of(first) as twin:
        assert [twin.getsockopt(*each) for each in options] == [
            first.getsockopt(*each) for each in options
        ]
        assert twin.gettimeout() == 0


def test_address_of_twins_is_taken_for_anybody_else() -> None:
    with (
        open_listener("127.0.0.1", 0) as first,
        twin_of(first),
        pytest.raises(OSError, match="in use") as refused,
    ):
        open_listener(*first.getsockname())

    assert refused.value.errno == errno.EADDRINUSE


def open_for(fronts: int, folder: Path, closing: ExitStack) -> Listeners:
    """Open what a server with so many fronts listens on: TCP twice, and a unix socket."""
    metadata = ("127.0.0.1:0", f"unix:{folder}/metadata.sock", "127.0.0.2:0")
    settings = make_settings({"metadata": metadata, "control": "127.0.0.1:0", "fronts": fronts})
    return open_listeners(settings, closing)


def test_each_front_has_a_listener_on_every_tcp_address(tmp_path: Path) -> None:
    with ExitStack() as closing:
        listeners = open_for(3, tmp_path, closing)

        families = [[each.family for each in group] for group in listeners.fronts]
        places = {tuple(each.getsockname() for each in group) for group in listeners.fronts}

        assert families == [[socket.AF_INET, socket.AF_INET]] * 3
        assert len(places) == 1
        assert [each.family for each in listeners.metadata] == [socket.AF_UNIX]


def test_private_socket_is_for_nobody_else_and_goes_with_the_server(tmp_path: Path) -> None:
    with ExitStack() as closing:
        (private,) = open_for(1, tmp_path, closing).private
        path = Path(private.getsockname())
        assert path.parent.stat().st_mode & 0o777 == 0o700
        assert path.stat().st_mode & 0o777 == 0o600

    assert not path.parent.exists()


def test_fronts_need_a_place_for_their_socket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "missing"))

    with (
        ExitStack() as closing,
        pytest.raises(StartError, match=r"Cannot create a socket for the fronts: .* set TMPDIR"),
    ):
        open_for(1, tmp_path, closing)


def test_server_without_fronts_listens_itself(tmp_path: Path) -> None:
    with ExitStack() as closing:
        listeners = open_for(0, tmp_path, closing)

        assert len(listeners.metadata) == 3
        assert (listeners.private, listeners.fronts) == ((), ())
