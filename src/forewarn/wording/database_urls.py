"""Database URLs as people may see them: where the database is, and no password."""

import re
from typing import Final
from urllib.parse import unquote

MASK: Final = "********"
"""What is shown in the place of a secret."""

_USER: Final = r"^(?P<before>[^:/?#]*://[^:/?#]*):"
_PASSWORDS: Final = (
    re.compile(_USER + r"[^/]*@(?P<after>.*)$", re.DOTALL),
    # With a slash in it, which should have been encoded.
    re.compile(_USER + r"[^?]*@(?P<after>.*)$", re.DOTALL),
)
"""What may be a password, and as much of it as may be."""
_SECRET_PARAMETERS: Final = frozenset({"password", "sslpassword"})


def hide_passwords(url: str) -> str:
    """Return *url* with every password in it masked."""
    found = next((match for each in _PASSWORDS if (match := each.match(url))), None)
    if found is not None:
        url = f"{found['before']}:{MASK}@{found['after']}"
    place, mark, query = url.partition("?")
    return place + mark + "&".join(map(_hide_parameter, query.split("&")))


def has_password(url: str) -> bool:
    """Tell whether there is a password in *url*."""
    return hide_passwords(url) != url


def _hide_parameter(parameter: str) -> str:
    name, equals, value = parameter.partition("=")
    is_secret = unquote(name) in _SECRET_PARAMETERS and bool(value)
    return f"{name}{equals}{MASK if is_secret else value}"
