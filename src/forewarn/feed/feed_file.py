"""What a relay was told, on disk before it is shown.

The file holds the lines of the feed as they came. So a relay that was killed shows, without the
server, nothing older than what it has shown before. Rules of this file:

- A line is on disk before anybody is shown what it says. Only a mark, which shows nothing, is not
  waited for: without it more than necessary is told again.
- Whatever follows the last line end was cut off while it was written. It is dropped: nobody was
  shown it.
- A file that cannot be understood is set aside. The relay then knows nothing, and says so.
- If a line cannot be written, the file is emptied, because it would be older than what is shown.
  The relay continues from memory, and writes all of it as soon as it can.
"""

import fcntl
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final, Self, TypeVar

import structlog

from forewarn.protocol.errors import ForewarnError

T = TypeVar("T")
ROOMY: Final = 256 * 1024
"""Up to this many bytes it is not worth writing the file anew."""
_GROWTH: Final = 4
"""How many times the size of its last rewriting a file may have."""
_FLAGS: Final = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC

_log = structlog.get_logger(__name__)


class FeedFileError(ForewarnError):
    """A folder in which no relay can keep what it was told."""


class FeedFile:
    """The file `feed.ndjson` in a *folder* that only one relay at a time may use.

    It is locked inside `with`, and used by one thread at a time. It is rewritten when it is larger
    than *roomy* and has grown.
    """

    def __init__(self, folder: Path, *, roomy: int = ROOMY) -> None:
        self.path = folder / "feed.ndjson"
        self._roomy = roomy
        self._lock = -1
        self._descriptor = -1
        self._size = 0
        self._size_rewritten = 0
        self._ends_with_mark = False
        self._is_behind = True

    def __enter__(self) -> Self:
        folder = self.path.parent
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = os.open(folder / "lock", _FLAGS, 0o600)
        except OSError as error:
            raise _unusable(folder, error) from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._lock)
            raise FeedFileError(
                f"Another relay is using {folder}; stop it, or set another state_dir."
            ) from None
        return self

    def __exit__(self, *_: object) -> None:
        self._close()
        os.close(self._lock)

    def load(self, read: Callable[[bytes], T]) -> tuple[T, ...]:
        """Return the lines that were kept, as *read* understands them; from now on, more are kept.

        If *read* raises a ForewarnError, the file is set aside, and nothing was kept.
        """
        try:
            content = self.path.read_bytes()
        except FileNotFoundError:
            content = b""
        except OSError as error:
            raise _unusable(self.path.parent, error) from error
        whole, end, cut_off = content.rpartition(b"\n")
        try:
            known = tuple(map(read, whole.split(b"\n"))) if end else ()
        except ForewarnError as error:
            self._set_aside(str(error))
            known, whole, end, cut_off = (), b"", b"", b""
        if cut_off:
            _log.info("feed_file_cut_off", file=str(self.path), dropped_bytes=len(cut_off))
        try:
            self._open(len(whole) + len(end))
        except OSError as error:
            self._give_up(error)
        return known

    def keep(self, line: bytes, *, is_mark: bool = False) -> None:
        """Have *line*, which has no end, on disk when this returns, unless that fails.

        A mark may come there later.
        """
        if self._is_behind or (is_mark and self._ends_with_mark):
            return
        try:
            self._size += _write_all(self._descriptor, line + b"\n")
            if not is_mark:
                os.fsync(self._descriptor)
        except OSError as error:
            self._give_up(error)
        self._ends_with_mark = is_mark

    @property
    def needs_rewriting(self) -> bool:
        """Whether it has grown, or lacks something that is shown."""
        limit = max(self._roomy, _GROWTH * self._size_rewritten)
        return self._is_behind or self._size > limit

    def rewrite(self, lines: Iterable[bytes]) -> None:
        """Put *lines*, which say all that is shown, into the place of what is there."""
        draft = self.path.with_suffix(".new")
        try:
            self._replace(draft, lines)
        except OSError as error:
            with suppress(OSError):
                draft.unlink(missing_ok=True)
            if not self._is_behind:  # what is there still says it all
                _log.warning("feed_file_not_rewritten", file=str(self.path), error=str(error))
                self._size_rewritten = self._size
            return
        if self._is_behind:
            self._is_behind = False
            _log.info("feed_file_written", file=str(self.path))

    def _replace(self, draft: Path, lines: Iterable[bytes]) -> None:
        descriptor = os.open(draft, _FLAGS | os.O_TRUNC, 0o600)
        try:
            size = sum(_write_all(descriptor, line + b"\n") for line in lines)
            os.fsync(descriptor)
            draft.replace(self.path)
        except BaseException:
            os.close(descriptor)
            raise
        self._close()
        self._descriptor = descriptor
        self._size = self._size_rewritten = size
        self._ends_with_mark = False
        _sync_folder(self.path.parent)

    def _open(self, size: int) -> None:
        """Go on after *size* bytes of the file."""
        self._descriptor = os.open(self.path, _FLAGS, 0o600)
        os.fchmod(self._descriptor, 0o600)
        os.ftruncate(self._descriptor, size)
        os.fsync(self._descriptor)
        _sync_folder(self.path.parent)
        self._size = size
        self._is_behind = False

    def _give_up(self, error: OSError) -> None:
        """Empty the file, so that nobody is shown after a restart what is older."""
        _log.error(
            "feed_file_not_written",
            file=str(self.path),
            error=str(error),
            consequence="after a restart, the relay serves nothing until it reaches the server",
        )
        self._is_behind = True
        with suppress(OSError):
            # By its name, which is perhaps a link that somebody else has made, only if need be.
            if self._descriptor == -1:
                self._descriptor = os.open(self.path, _FLAGS, 0o600)
            os.ftruncate(self._descriptor, 0)
            os.fsync(self._descriptor)

    def _set_aside(self, problem: str) -> None:
        aside = self.path.with_suffix(".damaged")
        with suppress(OSError):
            self.path.replace(aside)
        _log.error(
            "feed_file_damaged",
            file=str(aside),
            problem=problem,
            consequence="the relay serves nothing until it reaches the server",
        )

    def _close(self) -> None:
        if self._descriptor != -1:
            os.close(self._descriptor)
            self._descriptor = -1


def _write_all(descriptor: int, content: bytes) -> int:
    """Write *content*, which a full disk may take only the beginning of, and return its length."""
    written = 0
    while written < len(content):
        written += os.write(descriptor, content[written:])
    return written


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _unusable(folder: Path, error: OSError) -> FeedFileError:
    return FeedFileError(
        f"Cannot store the feed in {folder}: {error.strerror}. Make it writable, or set another "
        "state_dir."
    )
