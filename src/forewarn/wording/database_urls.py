"""Database URLs as people may see them: where the database is, and no password."""

import re
from typing import Final
from urllib.parse import unquote

MASK: Final = "********"
"""What is shown in the place of a secret."""

_USER: Final = r"^(?P<before>(?:[^:/?#]*:)?/{0,2}[^:/?#]*):(?![/\\])"
_PASSWORDS: Final = (
    re.compile(_USER + r"[^/]*@(?P<after>.*)$", re.DOTALL),
    # With a slash in it, which should have been encoded.
    re.compile(_USER + r"[^?]*@(?P<after>.*)$", re.DOTALL),
)
"""What may be a password, and as much of it as may be."""
_PARAMETER: Final = re.compile(
    r"(?P<name>[\w%]+)(?P<equals>\s*=\s*)"
    r"(?P<value>'(?:[^'\\]|\\.)*'?|.+?(?=\s+[\w%]+\s*=|&[\w%]+=|$))",
    re.DOTALL,
)
"""A parameter of the query of a URL, or of a conninfo string such as `host=db user=forewarn`."""
_SECRET_NAME: Final = re.compile("passw|secret|scram_", re.IGNORECASE)
_HOST: Final = r"(?:\[[^\]\s]*\]|[^\s/?#@:,\[\]]*)(?::\d*)?"
_NAME: Final = r"(?:(?!%3A|%3D)[^\s/?#@:=])*"
_POSTGRES_URL: Final = re.compile(
    rf"postgresql://(?:{_NAME}(?::[^\s/?#@]*)?@)?{_HOST}(?:,{_HOST})*(?:/{_NAME})?(?:\?[^\s#]*)?",
    re.IGNORECASE,
)


def hide_passwords(url: str) -> str:
    """Return *url* with every password in it masked; it may be malformed, or a conninfo string."""
    found = next((match for each in _PASSWORDS if (match := each.match(url))), None)
    if found is not None:
        url = f"{found['before']}:{MASK}@{found['after']}"
    return _PARAMETER.sub(_hide_parameter, url)


def has_password(url: str) -> bool:
    """Tell whether there is a password in *url*, encoded or not."""
    return any(hide_passwords(each) != each for each in (url, unquote(url)))


def is_postgres_url(url: str) -> bool:
    """Tell whether *url* is well-formed, with all that is special in its names encoded.

    Of another, libpq could take a part of the password for a host or a database, and show it.
    """
    return _POSTGRES_URL.fullmatch(url) is not None


def _hide_parameter(parameter: re.Match[str]) -> str:
    if _SECRET_NAME.search(unquote(parameter["name"])) is None:
        return parameter[0]
    return f"{parameter['name']}{parameter['equals']}{MASK}"
