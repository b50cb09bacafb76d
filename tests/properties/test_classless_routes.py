"""DHCP option 121: whatever is written can be read, and nothing makes the reader fail otherwise."""

from ipaddress import IPv4Address, IPv4Network

from hypothesis import given
from hypothesis import strategies as st

from forewarn.host_setup.dhcp_options import ClasslessRoute, decode_routes, encode_routes

NETWORKS = st.tuples(st.integers(0, 2**32 - 1), st.integers(0, 32)).map(
    lambda drawn: IPv4Network(drawn, strict=False)
)
ROUTES = st.builds(
    ClasslessRoute, network=NETWORKS, gateway=st.integers(0, 2**32 - 1).map(IPv4Address)
)


@given(routes=st.lists(ROUTES, max_size=28).map(tuple))
def test_routes_survive_the_wire(routes: tuple[ClasslessRoute, ...]) -> None:
    assert decode_routes(encode_routes(routes)) == routes


@given(value=st.binary(max_size=60))
def test_any_bytes_are_routes_or_refused(value: bytes) -> None:
    try:
        routes = decode_routes(value)
    except ValueError:
        return
    assert len(routes) <= len(value)
