"""Whatever is in a packet or a lease file, reading it ends, and an offer says what was put in."""

from collections.abc import Callable
from ipaddress import IPv4Address

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from forewarn.client._dhcp import make_discover, read_offer
from forewarn.client._leases import LEASE_FILES

MACS = st.binary(min_size=6, max_size=6)
XIDS = st.binary(min_size=4, max_size=4)
OTHER_OPTIONS = st.lists(
    st.tuples(
        st.integers(1, 254).filter(lambda code: code not in {53, 245}), st.binary(max_size=255)
    )
)
HEADER = b"\x02" + make_discover(bytes(6), bytes(4))[1:240]
STARTS = (
    b"",
    b"  option unknown-245 ",
    b'  option unknown-245 "',
    b"OPTION_245=",
    b"dhcp4.private_245=",
    HEADER,
)


@pytest.mark.parametrize("read", dict.fromkeys(LEASE_FILES.values()))
@given(start=st.sampled_from(STARTS), rest=st.binary() | st.from_regex(rb"[0-9a-f:]*[\";]*\n"))
def test_lease_readers_take_anything(
    read: Callable[[bytes], IPv4Address | None], start: bytes, rest: bytes
) -> None:
    address = read(start + rest)

    assert address is None or isinstance(address, IPv4Address)


@given(header=st.sampled_from((b"", HEADER)), rest=st.binary(max_size=600))
@example(header=HEADER, rest=b"\xf5")
@example(header=HEADER, rest=b"\x35\x01\x02\xf5\x04")
def test_offer_reader_takes_anything(header: bytes, rest: bytes) -> None:
    address = read_offer(header + rest, bytes(6), bytes(4))

    assert address is None or isinstance(address, IPv4Address)


@given(
    mac=MACS,
    xid=XIDS,
    address=st.ip_addresses(v=4),
    before=OTHER_OPTIONS,
    after=OTHER_OPTIONS,
    padding=st.integers(0, 3),
)
def test_offer_says_what_was_put_in(
    mac: bytes,
    xid: bytes,
    address: IPv4Address,
    before: list[tuple[int, bytes]],
    after: list[tuple[int, bytes]],
    padding: int,
) -> None:
    options = [*before, (53, b"\x02"), (245, address.packed), *after]
    encoded = b"".join(
        bytes((code, len(value))) + value + bytes(padding) for code, value in options
    )

    packet = b"\x02" + make_discover(mac, xid)[1:240] + encoded + b"\xff"

    assert read_offer(packet, mac, xid) == address
