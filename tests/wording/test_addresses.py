"""How operators write where to listen."""

from pathlib import Path

import pytest

from forewarn.wording.addresses import TcpAddress, UnixAddress, is_loopback_url, parse_address


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:80", TcpAddress("127.0.0.1", 80)),
        ("[::1]:0", TcpAddress("::1", 0)),
        ("localhost:8169", TcpAddress("localhost", 8169)),
        ("unix:/run/x.sock", UnixAddress(Path("/run/x.sock"))),
        ("unix:x.sock", UnixAddress(Path("x.sock"))),
    ],
)
def test_address_is_read(text: str, address: TcpAddress | UnixAddress) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize("text", ["", "unix:", "::1:80", "[::1]", "h", ":80", "h:", "h:x", "h/:1"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a valid address"):
        parse_address(text)


@pytest.mark.parametrize(
    ("url", "is_here"),
    [
        ("http://localhost:8170", True),
        ("http://127.0.0.9", True),
        ("http://[::1]:8170/", True),
        ("http://10.0.0.5:8170", False),
        ("http://localhost.example", False),
        ("http://[", False),
        ("", False),
    ],
)
def test_url_of_this_machine_is_known(url: str, *, is_here: bool) -> None:
    assert is_loopback_url(url) is is_here
