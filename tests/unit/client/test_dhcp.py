"""The two packets of asking for option 245."""

from ipaddress import IPv4Address

import pytest

from forewarn.client._dhcp import make_discover, read_offer, read_options

MAC = bytes.fromhex("00155d012a3b")
XID = b"\x11\x22\x33\x44"
COOKIE = b"\x63\x82\x53\x63"
OFFER = b"\x35\x01\x02"
ADDRESS = b"\xf5\x04\xa8\x3f\x81\x10"
END = b"\xff"


def offer(options: bytes, *, xid: bytes = XID, mac: bytes = MAC, op: int = 2) -> bytes:
    """Return what a server would answer."""
    return (
        bytes((op, 1, 6, 0))
        + xid
        + bytes(20)
        + mac.ljust(16, b"\0")
        + bytes(192)
        + COOKIE
        + options
    )


def test_discover_asks_for_option_245_and_for_a_broadcast() -> None:
    discover = make_discover(MAC, XID)

    assert len(discover) == 300
    assert discover[:12] == b"\x01\x01\x06\x00" + XID + b"\x00\x00\x80\x00"
    assert discover[28:44] == MAC + bytes(10)
    assert read_options(discover) == {53: b"\x01", 55: b"\xf5"}


@pytest.mark.parametrize(
    "options",
    [
        OFFER + ADDRESS + END,
        ADDRESS + OFFER + END,
        OFFER + b"\0\0\0" + ADDRESS + b"\0" + END,
        OFFER + b"\x0c\x00" + ADDRESS + END,
        OFFER + ADDRESS,
        OFFER + ADDRESS + b"\x0c",
        OFFER + ADDRESS + b"\x0c\x20web-0",
    ],
    ids=["plain", "other order", "padded", "empty option", "no end", "cut at code", "cut at value"],
)
def test_offer_has_the_address(options: bytes) -> None:
    assert read_offer(offer(options), MAC, XID) == IPv4Address("168.63.129.16")


@pytest.mark.parametrize(
    "packet",
    [
        b"",
        offer(OFFER + END),
        offer(OFFER + END + ADDRESS),
        offer(OFFER + b"\xf5\x03\xa8\x3f\x81" + END),
        offer(OFFER + b"\xf5\x08\xa8\x3f\x81\x10\xa8\x3f\x81\x10" + END),
        offer(OFFER + b"\xf5\x04\xa8\x3f\x81"),
        offer(OFFER + b"\xf5\x00" + END),
        offer(ADDRESS + END),
        offer(b"\x35\x01\x06" + ADDRESS + END),
        offer(OFFER + ADDRESS + END, xid=b"\x11\x22\x33\x45"),
        offer(OFFER + ADDRESS + END, mac=bytes(6)),
        offer(OFFER + ADDRESS + END, op=1),
        offer(OFFER + ADDRESS + END).replace(COOKIE, bytes(4)),
    ],
    ids=[
        *("empty packet", "no address", "behind the end", "short", "long", "cut", "no bytes"),
        *("no message type", "refusal", "other xid", "other mac", "a request", "no cookie"),
    ],
)
def test_anything_else_has_no_address(packet: bytes) -> None:
    assert read_offer(packet, MAC, XID) is None
