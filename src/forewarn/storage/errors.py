"""What the storage refuses; the tree is drawn in the package's docstring."""

from pathlib import Path

from forewarn.domain.errors import says
from forewarn.domain.names import ScopeId
from forewarn.ports.store import StoreError


@says(
    "Document {document_incarnation} of {scope_id} cannot be published: "
    "{current} was shown already."
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


@says("{url} names no SQLite file; write sqlite:///forewarn.db.")
class DatabaseUrlError(DatabaseError):
    """No SQLite file is meant."""

    url: str


@says("{path} cannot be used as it is.")
class DatabaseFileError(DatabaseError):
    """The database in a file cannot be used as it is; nothing was changed."""

    path: Path


@says("{path} is in use by another forewarn server; stop it, or use another file.")
class DatabaseInUseError(DatabaseFileError):
    """Another server has it open."""


@says("{path} cannot be used: {problem}.")
class DatabaseUnusableError(DatabaseFileError):
    """A directory, no permission, no space."""

    problem: str


@says("{path} is not a forewarn database; use another file.")
class NotADatabaseError(DatabaseFileError):
    """Something else is in the file."""


@says("{path} is damaged ({finding}); restore it from a backup.")
class DatabaseDamagedError(DatabaseFileError):
    """It was a database once."""

    finding: str


@says("{path} {problem}.")
class BackupRefusedError(DatabaseFileError):
    """A copy that would replace what it must not."""

    problem: str


@says("{path} does not have the schema of this release; run `forewarn db upgrade` first.")
class DatabaseOutdatedError(DatabaseFileError):
    """An older release made it."""


@says(
    "{path} has schema {revision}, which this release does not know; "
    "use the release that made it, or a newer one."
)
class DatabaseTooNewError(DatabaseFileError):
    """A newer release made it."""

    revision: str
