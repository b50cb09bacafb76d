"""The link of a host is cut for two minutes. Only `make soak` runs this."""

from collections.abc import Mapping
from pathlib import Path

from tests.e2e.relays import build_site
from tests.e2e.test_relay import live_through_outages

CUT_SECONDS = 120.0


def test_guests_are_served_through_two_minutes_without_the_server(
    tmp_path: Path, environment: Mapping[str, str]
) -> None:
    with build_site(tmp_path, environment) as site:
        site.begin()
        live_through_outages(site, CUT_SECONDS)
