"""Files that nobody else may write or read: secrets, and what commands follow unasked."""

import os
import stat
from pathlib import Path
from typing import IO, Final

from forewarn.protocol.errors import ForewarnError

SHORTEST_SECRET: Final = 20
"""What is shorter could be guessed, or is what is left of a token after a full disk."""
_LONGEST_SECRET: Final = 1024
"""It is sent in a header; what is longer is another file."""
# Neither is there on Windows.
_NOT_THROUGH_LINKS: Final[int] = getattr(os, "O_NOFOLLOW", 0)
_WITHOUT_WAITING: Final[int] = getattr(os, "O_NONBLOCK", 0)


class UnsafeFileError(ForewarnError):
    """A file that another user could have written or read."""


def is_trusted(path: Path, *, directory: Path | None = None) -> bool:
    """Tell whether *path*, link and target, belongs to this user or to root, and is not for all.

    The owner of *directory* is trusted as well where an operator has named it.
    """
    target = path.stat()
    is_for_all = os.name == "posix" and bool(target.st_mode & stat.S_IWOTH)
    return not is_for_all and _has_trusted_owner(path.lstat(), target, directory)


def _has_trusted_owner(
    link: os.stat_result, target: os.stat_result, directory: Path | None
) -> bool:
    if os.name != "posix":
        return True
    named = set() if directory is None else {directory.stat().st_uid}
    if link.st_uid in {0, os.geteuid()}:
        return target.st_uid in {0, os.geteuid()} | named
    # Somebody else may have us read what is theirs, and nothing that only we can read.
    return {link.st_uid, target.st_uid} == named


def read_secret(path: Path, *, remedy: str = "remove it, and the server creates a new one") -> str:
    """Return the secret in *path*; refuse a file that is not private, or no secret."""
    with os.fdopen(os.open(path, os.O_RDONLY | _WITHOUT_WAITING), "rb") as file:
        opened = os.fstat(file.fileno())  # what is at *path* may change at any time
        mode = opened.st_mode
        if not _has_trusted_owner(path.lstat(), opened, path.parent if _is_root() else None):
            raise UnsafeFileError(
                f"{path} belongs to another user; run this as that user, or remove it."
            )
        if not stat.S_ISREG(mode):
            raise UnsafeFileError(f"{path} is not a regular file; remove it.")
        if os.name == "posix" and mode & 0o077:
            raise UnsafeFileError(f"Other users can access {path}; run: chmod 600 {path}")
        content = file.read(_LONGEST_SECRET + 1).strip().decode("ascii", "replace")
    has_length = SHORTEST_SECRET <= len(content) <= _LONGEST_SECRET
    if not (has_length and content.isascii() and content.isprintable()):
        raise UnsafeFileError(
            f"{path} does not contain a token of {SHORTEST_SECRET} to {_LONGEST_SECRET} ASCII "
            f"characters on one line; {remedy}."
        )
    return content


def write_secret(path: Path, secret: str) -> None:
    """Put *secret* into *path*, complete or not at all, for the owner of its directory only."""
    draft = draft_of(path)
    try:
        with create_private(draft) as file:
            file.write(f"{secret}\n".encode("ascii"))
            file.flush()
            os.fsync(file.fileno())
        give_to_owner_of(path.parent, draft)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def draft_of(path: Path) -> Path:
    """Return a name beside *path* that nobody can have guessed."""
    return path.with_name(f"{path.name}.{os.urandom(8).hex()}")


def create_private(path: Path) -> IO[bytes]:
    """Create *path* for this user only; refuse one that exists, a link as well."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NOT_THROUGH_LINKS
    return os.fdopen(os.open(path, flags, 0o600), "wb")


def give_to_owner_of(directory: Path, path: Path) -> None:
    """Let the owner of *directory*, whom the server runs as, own *path*; only root can."""
    if _is_root():
        owner = directory.stat()
        # That owner could put a link to somebody else's file in its place.
        os.chown(path, owner.st_uid, owner.st_gid, follow_symlinks=False)


def _is_root() -> bool:
    return os.name == "posix" and os.geteuid() == 0
