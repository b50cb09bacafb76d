"""A node: a state directory, which one server at a time uses. It owns tasks.

Its id is made once and stays with the files.
"""

import os
import re
import socket
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from forewarn.bootstrap.start import StartError
from forewarn.private_files import create_private, draft_of, give_to_owner_of
from forewarn.storage.lock import locked_directory

NODE_FILE: Final = "node.id"
_LIKE_NODES: Final = re.compile(r"[^\s:]+:[0-9a-f]{32}")


def find_node(directory: Path, *, is_shared: bool = True) -> str:
    """Return the node of this state *directory*; at the first start, make it one.

    It begins with the name of the machine, so that people know whom it is about. Where the database
    *is_shared*, it ends with the number of the file: a copy of a state directory knows nothing of
    what the original begins.
    """
    path = directory / NODE_FILE
    try:
        if not path.exists():
            _make(path, f"{socket.gethostname()}:{uuid.uuid4().hex}")
        node, number = path.read_text(encoding="utf-8").strip(), path.stat().st_ino
    except UnicodeDecodeError:
        node, number = "", 0
    except OSError as error:
        raise StartError(f"Cannot store the node id in {path}: {error.strerror}.") from error
    if _LIKE_NODES.fullmatch(node) is None:
        raise StartError(
            f"{path} does not contain a valid node id; restore it, or remove it to serve as a "
            "new replica."
        )
    return f"{node}-{number:x}" if is_shared else node


@contextmanager
def held(directory: Path) -> Iterator[None]:
    """Keep the state *directory* to this server: two would take each other for lost."""
    with ExitStack() as stack:
        try:
            directory.mkdir(parents=True, exist_ok=True)
            stack.enter_context(locked_directory(directory))
        except BlockingIOError:
            raise StartError(
                f"Another server uses the state directory {directory}; stop it, or use another "
                "directory with --state-dir."
            ) from None
        except OSError as error:
            problem = f"The state directory {directory} cannot be used: {error.strerror}."
            raise StartError(problem) from error
        yield


def _make(path: Path, node: str) -> None:
    """Put *node* into *path*, complete or not at all, unless another process is faster."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = draft_of(path)
    try:
        with create_private(draft) as file:
            file.write(f"{node}\n".encode())
            file.flush()
            os.fsync(file.fileno())
        give_to_owner_of(path.parent, draft)
        path.hardlink_to(draft)
    except FileExistsError:
        return
    finally:
        draft.unlink(missing_ok=True)
