"""What tells that a request was passed on by a proxy."""

from typing import Final

FORWARDED_FOR: Final = b"x-forwarded-for"
FORWARDING: Final = frozenset(
    {FORWARDED_FOR, b"x-forwarded-host", b"x-real-ip", b"forwarded", b"via"}
)
"""What proxies add to a request; whoever sent it to them may have chosen its path."""
