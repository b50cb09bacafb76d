"""What every webhook has: an address, headers, a signature, and a word on when to come back."""

import hashlib
import hmac
import re
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Final

SIGNATURE: Final = "Forewarn-Signature"

_URL: Final = re.compile(r"https?://[^/\s]+(/\S*)?")
_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_LONGEST_RETRY_AFTER: Final = 86_400


def sign(secret: str, body: bytes, now: datetime) -> str:
    """Return the value of the header that proves who sent *body*, and when."""
    moment = str(int(now.timestamp()))
    signed = hmac.new(secret.encode(), f"{moment}.".encode() + body, hashlib.sha256)
    return f"t={moment},v1={signed.hexdigest()}"


def is_url(text: str) -> bool:
    """Tell whether *text* is an address that can be posted to."""
    return _URL.fullmatch(text) is not None


def is_header(name: str, value: str) -> bool:
    """Tell whether there can be a header of this *name* and *value*."""
    fits = value.isascii() and value.isprintable() and value == value.strip()
    return fits and _HEADER_NAME.fullmatch(name) is not None


def retry_after(text: str, now: datetime) -> timedelta:
    """Read the header of that name: a number of seconds or a date, a day from now at most."""
    try:
        seconds = int(text) if text.isdecimal() else _seconds_until(text, now)
    except ValueError:
        return timedelta(0)
    return timedelta(seconds=min(max(seconds, 0), _LONGEST_RETRY_AFTER))


def _seconds_until(text: str, now: datetime) -> float:
    moment = parsedate_to_datetime(text)
    return ((moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - now).total_seconds()
