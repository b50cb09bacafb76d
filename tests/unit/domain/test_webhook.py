"""What every webhook has."""

import hashlib
import hmac
from datetime import UTC, datetime, timedelta

import pytest

from forewarn.domain.webhook import is_header, is_url, retry_after, sign

NOW = datetime(2026, 1, 5, 8, tzinfo=UTC)


def test_signature_covers_time_and_body() -> None:
    seconds = int(NOW.timestamp())
    expected = hmac.new(b"hush", f"{seconds}.body".encode(), hashlib.sha256).hexdigest()

    assert sign("hush", b"body", NOW) == f"t={seconds},v1={expected}"


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        ("http://10.0.0.1:80", True),
        ("https://hooks.example.org/forewarn?x=1", True),
        ("ftp://hooks.example.org/", False),
        ("https:///path", False),
        ("https://a b/", False),
    ],
)
def test_address_begins_with_http(text: str, is_one: bool) -> None:  # noqa: FBT001
    assert is_url(text) is is_one


@pytest.mark.parametrize(
    ("name", "value", "is_one"),
    [
        ("X-Token", "Bearer 1", True),
        ("X Token", "1", False),
        ("X-Token", "1\r\nHost: other", False),
        ("X-Token", "tür", False),
        ("X", "hush ", False),
        ("X", " hush", False),
    ],
)
def test_header_cannot_smuggle_another(name: str, value: str, is_one: bool) -> None:  # noqa: FBT001
    assert is_header(name, value) is is_one


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("7", 7),
        ("999999999", 86_400),
        ("Mon, 05 Jan 2026 08:00:30 GMT", 30),
        ("Mon, 05 Jan 2026 08:00:30 -0000", 30),
        ("Mon, 05 Jan 2026 07:00:00 GMT", 0),
        ("soon", 0),
        ("", 0),
    ],
)
def test_target_says_when_to_come_back(text: str, seconds: int) -> None:
    assert retry_after(text, NOW) == timedelta(seconds=seconds)
