"""Names of HTTP statuses, the same on every version of Python."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

_RENAMED: Final[Mapping[int, str]] = {
    413: "Content Too Large",
    414: "URI Too Long",
    416: "Range Not Satisfiable",
    422: "Unprocessable Content",
}
"""Statuses that RFC 9110 renamed, which Python knows only since 3.13."""


def name_of_status(status: HTTPStatus) -> str:
    """Return the name of *status* in RFC 9110."""
    return _RENAMED.get(status, status.phrase)
