"""Who owns the files that an administrator makes for a server."""

import os
from pathlib import Path


def give_to_owner_of(directory: Path, path: Path) -> None:
    """Let the owner of *directory*, whom the server runs as, own *path*; only root can."""
    if os.name == "posix" and os.geteuid() == 0:
        owner = directory.stat()
        os.chown(path, owner.st_uid, owner.st_gid)
