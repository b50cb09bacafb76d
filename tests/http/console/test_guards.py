"""Whom the console answers, and what other pages cannot do with a browser that is signed in."""

from collections.abc import Iterator

import httpx2
import pytest

from forewarn.console.cookies import CSRF_HEADER
from forewarn.console.site import SECTIONS
from forewarn.testing.emulator import Emulator

FLEET = {"virtual_machine": [{"name": "solo", "addresses": ["10.0.0.10"]}]}


@pytest.fixture(scope="module")
def emulator() -> Iterator[Emulator]:
    with Emulator(fleet=FLEET) as running:
        yield running


@pytest.fixture
def browser(emulator: Emulator) -> Iterator[httpx2.Client]:
    """Return somebody who is signed in as the admin."""
    with httpx2.Client(base_url=emulator.control_url, trust_env=False) as client:
        answer = client.post("/login", headers={"Authorization": f"Bearer {emulator.token}"})
        assert answer.status_code == 204
        yield client


def is_signed_in(browser: httpx2.Client) -> bool:
    return browser.get("/").status_code == 200


@pytest.mark.parametrize("path", [section.path for section in SECTIONS])
def test_page_asks_strangers_to_sign_in(emulator: Emulator, path: str) -> None:
    answer = httpx2.get(f"{emulator.control_url}{path}", trust_env=False)

    assert answer.status_code == 303
    assert answer.headers["Location"].startswith("/login")


def test_stream_of_changes_is_not_for_strangers(emulator: Emulator) -> None:
    assert httpx2.get(f"{emulator.control_url}/live", trust_env=False).status_code == 401


@pytest.mark.parametrize("proof", ["", "0" * 64, "é"])
def test_forged_action_does_nothing(browser: httpx2.Client, proof: str) -> None:
    headers = {CSRF_HEADER.encode(): proof.encode()} if proof else {}

    answer = browser.post("/logout", headers=headers)

    assert answer.status_code == 403
    assert is_signed_in(browser)
