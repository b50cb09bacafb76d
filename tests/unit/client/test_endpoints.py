import math

import pytest

from forewarn.client import AsyncClient, Client, EndpointError
from forewarn.client._endpoints import Endpoint, parse_endpoint


@pytest.mark.parametrize(
    ("text", "endpoint"),
    [
        ("169.254.169.254", Endpoint(host="169.254.169.254")),
        ("metadata", Endpoint(host="metadata")),
        ("Metadata.Example.", Endpoint(host="metadata.example.")),
        ("127.0.0.1:8169", Endpoint(host="127.0.0.1", port=8169)),
        ("[::1]", Endpoint(host="::1")),
        ("[fe80::1]:8169", Endpoint(host="fe80::1", port=8169)),
        ("http://127.0.0.1", Endpoint(host="127.0.0.1")),
        ("HTTP://host:81/", Endpoint(host="host", port=81)),
        ("http://host:81/vm/web-0", Endpoint(host="host", port=81, prefix="/vm/web-0")),
        ("http://host:81/vm/web-0/", Endpoint(host="host", port=81, prefix="/vm/web-0")),
        ("127.0.0.1:8169/vm/a%20b", Endpoint(host="127.0.0.1", port=8169, prefix="/vm/a%20b")),
        ("http://[::1]:8169/vm/x", Endpoint(host="::1", port=8169, prefix="/vm/x")),
    ],
)
def test_endpoint_may_be_written_in_several_ways(text: str, endpoint: Endpoint) -> None:
    assert parse_endpoint(text) == endpoint


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "ho st",
        "host\n",
        "h\u00f6st",
        "::1",
        "[::1",
        "[nonsense]",
        "[v1.a:b]",
        "host:port",
        "host:0",
        "host:65536",
        "host:-1",
        ":80",
        "http://",
        "http:///vm/web-0",
        "https://host",
        "ftp://host",
        "http://ann:secret@host",
        "http://host/?x=1",
        "http://host/#x",
        "-host",
        "host..example",
        f"{'a' * 64}.example",
    ],
)
@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_what_is_no_endpoint_is_refused_when_the_client_is_made(
    kind: type[Client | AsyncClient], text: str
) -> None:
    with pytest.raises(EndpointError, match="Use http://HOST:PORT"):
        kind(text)


@pytest.mark.parametrize(
    "text", ["http://host", "http://host:8169/vm/web-0", "http://[::1]", "http://[::1]:8169/x"]
)
def test_endpoint_is_shown_as_the_url_it_is(text: str) -> None:
    assert str(parse_endpoint(text)) == text


@pytest.mark.parametrize("kind", [Client, AsyncClient])
@pytest.mark.parametrize(
    ("name", "seconds"),
    [("timeout", 0), ("timeout", math.nan), ("timeout", math.inf), ("patience", -1)],
)
def test_times_that_make_no_sense_are_refused_when_the_client_is_made(
    kind: type[Client | AsyncClient], name: str, seconds: float
) -> None:
    with pytest.raises(ValueError, match=f"{name} must be"):
        kind("host", **{name: seconds})  # type: ignore[arg-type]
