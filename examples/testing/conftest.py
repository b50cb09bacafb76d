"""Which machines there are in every test."""

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def scheduled_events_fleet() -> Path:
    return Path(__file__).with_name("fleet.toml")
