"""Where a relay listens, and what it says when it cannot."""

import socket
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.needs import need_root

from forewarn.front.listeners import ListeningError, open_listeners
from forewarn.front.settings import RelaySettings, load_relay_settings


def need_interfaces() -> None:
    need_root("bind a listener to an interface")


def listening_on(**given: Any) -> RelaySettings:
    needed = {"server": "https://centre:8170", "token_file": Path("relay.token")}
    return load_relay_settings({**needed, **given}, None)


def test_every_address_has_its_listener(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with ExitStack() as stack:
        opened = [
            stack.enter_context(listener)
            for listener in open_listeners(listening_on(metadata=["127.0.0.1:0", f"unix:{path}"]))
        ]

        assert [each.family for each in opened] == [socket.AF_INET, socket.AF_UNIX]
        socket.create_connection(opened[0].getsockname(), timeout=60).close()
        assert path.is_socket()


def test_listener_of_an_interface_answers_only_there() -> None:
    need_interfaces()
    (listener,) = open_listeners(listening_on(metadata=["127.0.0.1:0"], interface=["lo"]))
    with listener:
        bound = listener.getsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, 16)

        assert bound.rstrip(b"\0") == b"lo"
        socket.create_connection(listener.getsockname(), timeout=60).close()


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (
            {"metadata": ["192.0.2.1:80"]},
            r"Cannot listen on 192\.0\.2\.1:80: .* ip address add 192\.0\.2\.1/32 dev BRIDGE$",
        ),
        (
            {"metadata": ["127.0.0.1:0"], "interface": ["br-none"]},
            r"127\.0\.0\.1:0 on br-none: No such device\. List the interfaces: ip link$",
        ),
    ],
)
def test_refusal_says_what_to_do(given: dict[str, Any], sentence: str) -> None:
    if "interface" in given:
        need_interfaces()
    with pytest.raises(ListeningError, match=sentence):
        list(open_listeners(listening_on(**given)))


def test_address_in_use_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"

        with pytest.raises(ListeningError, match="Choose another address with --metadata"):
            list(open_listeners(listening_on(metadata=[address])))
