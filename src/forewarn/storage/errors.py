"""What the storage refuses; the tree is drawn in the package's docstring."""

from pathlib import Path

from forewarn.domain.names import ScopeId
from forewarn.ports.store import StoreError


class DocumentIncarnationError(StoreError):
    """An incarnation that was shown with other content, or one that lies behind."""

    def __init__(self, scope_id: ScopeId, document_incarnation: int, current: int) -> None:
        super().__init__(
            f"Document {document_incarnation} of {scope_id} cannot be published: "
            f"{current} was shown already."
        )
        self.scope_id = scope_id
        self.document_incarnation = document_incarnation
        self.current = current


class StoreClosedError(StoreError):
    """It was closed."""

    def __init__(self) -> None:
        super().__init__("The store is closed.")


class DatabaseError(StoreError):
    """The database cannot be used as it is; nothing was changed."""


class DatabaseUrlError(DatabaseError):
    """No SQLite file is meant."""

    def __init__(self, url: str) -> None:
        super().__init__(f"{url} names no SQLite file; write sqlite:///forewarn.db.")
        self.url = url


class DatabaseFileError(DatabaseError):
    """The database in a file cannot be used as it is; nothing was changed."""

    def __init__(self, path: Path, sentence: str) -> None:
        super().__init__(sentence)
        self.path = path


class DatabaseInUseError(DatabaseFileError):
    """Another server has it open."""

    def __init__(self, path: Path) -> None:
        super().__init__(
            path, f"{path} is in use by another forewarn server; stop it, or use another file."
        )


class DatabaseUnusableError(DatabaseFileError):
    """A directory, no permission, no space."""

    def __init__(self, path: Path, problem: str) -> None:
        super().__init__(path, f"{path} cannot be used: {problem}.")
        self.problem = problem


class NotADatabaseError(DatabaseFileError):
    """Something else is in the file."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, f"{path} is not a forewarn database; use another file.")


class DatabaseDamagedError(DatabaseFileError):
    """It was a database once."""

    def __init__(self, path: Path, finding: str) -> None:
        super().__init__(path, f"{path} is damaged ({finding}); restore it from a backup.")
        self.finding = finding


class BackupRefusedError(DatabaseFileError):
    """A copy that would replace what it must not."""

    def __init__(self, path: Path, problem: str) -> None:
        super().__init__(path, f"{path} {problem}.")


class DatabaseOutdatedError(DatabaseFileError):
    """An older release made it."""

    def __init__(self, path: Path) -> None:
        super().__init__(
            path,
            f"{path} does not have the schema of this release; run `forewarn db upgrade` first.",
        )


class DatabaseTooNewError(DatabaseFileError):
    """A newer release made it."""

    def __init__(self, path: Path, revision: str) -> None:
        super().__init__(
            path,
            f"{path} has schema {revision}, which this release does not know; "
            "use the release that made it, or a newer one.",
        )
        self.revision = revision
