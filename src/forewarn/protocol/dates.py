"""NotBefore as text, written in one form per api-version and read in all of them; Retry-After."""

from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import format_datetime, parsedate_to_datetime
from typing import assert_never

from forewarn.protocol.versions import DateForm


def write_date(moment: datetime, form: DateForm) -> str:
    """Return the whole second *moment* lies in, in GMT, independent of the locale."""
    second = moment.astimezone(UTC).replace(microsecond=0)
    match form:
        case DateForm.ISO_8601:
            return second.replace(tzinfo=None).isoformat() + "Z"
        case DateForm.RFC_1123:
            return format_datetime(second, usegmt=True)
        case _:
            assert_never(form)


def read_date(text: object) -> datetime | None:
    """Return the moment *text* names, or None when it names none.

    Lenient on purpose: either form, any offset, a missing offset meaning GMT, and a weekday that
    does not fit the date (compatibility.md#notbefore).
    """
    if not isinstance(text, str):
        return None
    for parse in (parsedate_to_datetime, datetime.fromisoformat):
        try:
            moment = parse(text.strip())
            return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
        except (ValueError, OverflowError):
            continue
    return None


def read_retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds of Retry-After; a date there is compared with the server's own Date.

    The names of *headers* are in small letters.
    """
    text = headers.get("retry-after", "").strip()
    if text.isascii() and text.isdecimal() and len(text) < 10:
        return float(text)
    moment, now = read_date(text), read_date(headers.get("date"))
    if moment is None or now is None:
        return None
    return max((moment - now).total_seconds(), 0.0)
