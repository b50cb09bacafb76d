"""What errors of a PostgreSQL database mean: what is wrong with it, and whether that will pass."""

import re
from collections.abc import Mapping
from typing import Final

import psycopg
from psycopg import errors
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from forewarn.storage.writer import UncertainCommitError


def will_pass(error: Exception) -> bool:
    """Tell whether a connection that failed with *error* may succeed later, with nothing changed.

    Why is said in words only, and by some servers in another language: whatever is not known to be
    a mistake may pass, for a replica must not end because the database is away.
    """
    return _LASTING.search(str(error)) is None


_LASTING: Final = re.compile(
    r"does not exist|authentication failed|no password supplied|no pg_hba\.conf entry"
    r"|permission denied|not permitted to log in|does not support SSL|certificate"
    r"|invalid \w+ value|invalid port number|invalid connection option"
    r"|could not translate host name|failed to resolve host .*\[Errno -2\]"
)


def outage(error: BaseException) -> str | None:
    """Say what is wrong with the database or the way to it, if that is what *error* tells.

    None for anything else, such as a row that breaks a constraint.
    """
    cause = error.__cause__ if isinstance(error, UncertainCommitError) else error
    origin = cause.orig if isinstance(cause, DBAPIError) else cause
    if isinstance(origin, PoolTimeoutError):
        return "all its connections are busy; try again"
    said = str(origin)
    for kind, sentence in _OUTAGES.items():
        if isinstance(origin, kind):
            known = next((each for words, each in _WORDS.items() if words in said), sentence)
            return known.format(said=said.strip().partition("\n")[0])
    return None


_WORDS: Final[Mapping[str, str]] = {
    "certificate verify failed": (
        "its TLS certificate is not trusted ({said}); set sslrootcert to the CA certificate file"
    ),
    "does not match host name": (
        "its TLS certificate is for another name ({said}); connect to a name in the certificate"
    ),
}
"""What libpq says in words only."""

_OUTAGES: Final[Mapping[type[psycopg.Error], str]] = {
    errors.DiskFull: "its disk is full; free some space",
    errors.ReadOnlySqlTransaction: "it is read-only, like a standby; connect to the primary",
    errors.TooManyConnections: "it accepts no more connections; raise max_connections",
    errors.LockNotAvailable: "another replica's write took too long; try again",
    errors.IdleInTransactionSessionTimeout: "a write paused for too long",
    errors.InsufficientPrivilege: "its user has no permission ({said})",
    errors.UndefinedTable: "its tables were changed ({said}); restore it from a backup",
    psycopg.OperationalError: "it is not available ({said})",
    psycopg.InterfaceError: "the connection to it was lost ({said})",
}
"""What is wrong, the first that fits."""
