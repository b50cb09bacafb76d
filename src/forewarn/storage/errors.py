"""What the storage refuses; the tree is drawn in the package's docstring."""

from pathlib import Path
from typing import Final, TypeAlias

from sqlalchemy import URL

from forewarn.domain.errors import says
from forewarn.domain.names import ScopeId
from forewarn.ports.store import StoreError
from forewarn.wording.database_urls import hide_passwords

DatabasePlace: TypeAlias = Path | URL
"""Where a database is: a file, or a database of a server."""

_SECRETS: Final = ("password", "sslpassword")


def describe_place(place: DatabasePlace) -> str:
    """Return how people know the database, without passwords."""
    if isinstance(place, Path):
        return hide_passwords(str(place))  # a URL that was given as a file
    # libpq takes passwords from the query of a URL as well.
    public = place.difference_update_query(_SECRETS).set(drivername=place.get_backend_name())
    return public.render_as_string(hide_password=True)


@says(
    "Document {document_incarnation} of {scope_id} cannot be published: {current} was already "
    "published."
)
class DocumentIncarnationError(StoreError):
    """An incarnation that was shown with other content, or one that lies behind."""

    scope_id: ScopeId
    document_incarnation: int
    current: int


@says("The store is closed.")
class StoreClosedError(StoreError):
    """It was closed."""


class DatabaseError(StoreError):
    """The database cannot be used as it is; nothing was changed."""


@says("The URL is not a valid database URL; use sqlite:///forewarn.db or postgresql://HOST/DB.")
class DatabaseUrlError(DatabaseError):
    """No database is meant; the URL is not repeated, because there may be a password in it."""


@says("PostgreSQL needs psycopg; run: pip install forewarn[postgres]")
class PostgresMissingError(DatabaseError):
    """An install that cannot speak to PostgreSQL."""


class DatabasePlaceError(DatabaseError):
    """The database at this place cannot be used as it is; nothing was changed."""

    def __init__(self, place: DatabasePlace, problem: str) -> None:
        super().__init__(f"{describe_place(place)} {problem}.")
        self.place = place


class DatabaseInUseError(DatabasePlaceError):
    """Another server has it open."""

    def __init__(self, path: Path) -> None:
        problem = "is in use by another forewarn server; stop it, or use another file"
        super().__init__(path, problem)


class DatabaseUnusableError(DatabasePlaceError):
    """A directory, no permission, no space."""

    def __init__(self, place: DatabasePlace, problem: str) -> None:
        super().__init__(place, f"cannot be used: {problem}")
        self.problem = problem


class NotADatabaseError(DatabasePlaceError):
    """Something else is in it."""

    def __init__(self, place: DatabasePlace) -> None:
        kind = "file" if isinstance(place, Path) else "database"
        super().__init__(place, f"is not a forewarn database; use another {kind}")


class DatabaseDamagedError(DatabasePlaceError):
    """It was a database once."""

    def __init__(self, path: Path, finding: str) -> None:
        super().__init__(path, f"is damaged ({finding}); restore it from a backup")
        self.finding = finding


class BackupRefusedError(DatabasePlaceError):
    """A copy that would replace what it must not."""


class DatabaseOutdatedError(DatabasePlaceError):
    """An older release made it."""

    def __init__(self, place: DatabasePlace) -> None:
        problem = "has an outdated schema; run `forewarn db upgrade` first"
        super().__init__(place, problem)


class DatabaseTooNewError(DatabasePlaceError):
    """A newer release made it, and no longer works beside this one."""

    def __init__(self, place: DatabasePlace, revision: str) -> None:
        super().__init__(
            place,
            f"has schema {revision}, which this release does not know; use the release that "
            "created it, or a newer one",
        )
        self.revision = revision


class DatabaseUnreleasedError(DatabasePlaceError):
    """A version that was never released made it."""

    def __init__(self, place: DatabasePlace, revision: str) -> None:
        super().__init__(
            place,
            f"has schema {revision} of an unreleased version, which cannot be upgraded; export the "
            "fleet with that version (`forewarn fleet export`), and use a new database",
        )


class CopyRefusedError(DatabasePlaceError):
    """A database that cannot be copied, or that is not empty."""
