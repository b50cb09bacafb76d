"""Where an emulator listens, apart from test_emulator.py, which also runs without our helpers."""

import pytest
from tests.needs import need_ipv6
from tests.testing.test_emulator import ask

from forewarn.testing import Emulator


@pytest.mark.parametrize(
    ("listen", "host"),
    [
        (("127.0.0.2", 0), "127.0.0.2"),
        (("::1", 0), "[::1]"),
        (("0.0.0.0", 0), "127.0.0.1"),  # noqa: S104 - everywhere is here, too
    ],
)
def test_address_is_where_it_listens(listen: tuple[str, int], host: str) -> None:
    if ":" in host:
        need_ipv6()
    emulator = Emulator(default_vm="web-0")
    emulator.start(listen)
    try:
        web = emulator.vm("web-0")

        assert emulator.address.rpartition(":")[0] == host
        assert ask(f"http://{emulator.address}/metadata/versions")
        assert ask(f"{web.url}/metadata/versions")
        assert ask(f"{web.environment['FOREWARN_METADATA_URL']}/metadata/versions")
        assert ask(f"{emulator.control_url}/healthz")
    finally:
        emulator.close()
