"""What is said when something is refused, and with which status."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

from forewarn.connections.limits import StreamLimitError
from forewarn.desk.services import BusyError
from forewarn.domain.access import AccessError
from forewarn.domain.errors import ConflictError, InvalidError, NotFoundError, says
from forewarn.ports.leadership import NotLeadingError
from forewarn.ports.store import StoreUnavailableError
from forewarn.protocol.errors import ForewarnError
from forewarn.wording.statuses import name_of_status


@says("The request did not come from a page of this console. Reload the page and try again.")
class ForgedRequestError(AccessError):
    """Something to do without the token of the session: by a page of others, or an old one."""


@says("Page not found.")
class UnknownPageError(NotFoundError):
    """An address that leads nowhere."""


STATUSES: Final[Mapping[type[ForewarnError], HTTPStatus]] = {
    AccessError: HTTPStatus.FORBIDDEN,
    NotFoundError: HTTPStatus.NOT_FOUND,
    InvalidError: HTTPStatus.UNPROCESSABLE_ENTITY,
    ConflictError: HTTPStatus.CONFLICT,
    BusyError: HTTPStatus.TOO_MANY_REQUESTS,
    StreamLimitError: HTTPStatus.TOO_MANY_REQUESTS,
    NotLeadingError: HTTPStatus.SERVICE_UNAVAILABLE,
    StoreUnavailableError: HTTPStatus.SERVICE_UNAVAILABLE,
}
"""The status of each kind of error, and of those below it; as in the control API."""

TITLES: Final[Mapping[HTTPStatus, str]] = {
    HTTPStatus.FORBIDDEN: "Not allowed",
    HTTPStatus.NOT_FOUND: "Not found",
    HTTPStatus.SERVICE_UNAVAILABLE: "Temporarily unavailable",
    HTTPStatus.INTERNAL_SERVER_ERROR: "Internal server error",
}
"""What the page about it is called, where that is not what HTTP calls it."""


def status_of(error: ForewarnError) -> HTTPStatus:
    """Return the status of *error*: that of the nearest of its bases that has one."""
    kinds = (kind for kind in type(error).__mro__ if kind in STATUSES)
    return STATUSES.get(next(kinds, ForewarnError), HTTPStatus.INTERNAL_SERVER_ERROR)


def title_of(status: HTTPStatus) -> str:
    """Return what the page about *status* is called."""
    return TITLES.get(status, name_of_status(status))
