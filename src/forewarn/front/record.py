"""What a relay was told, kept in its file and found there again."""

from pathlib import Path
from typing import Final

from forewarn.domain.names import HostName, name_key
from forewarn.feed.feed_file import FeedFile
from forewarn.feed.frames import FeedLine, Hello, Mark, decode_line
from forewarn.feed.mirror import Mirror
from forewarn.metadata.board import Pages
from forewarn.protocol.errors import ForewarnError


class ForeignStateError(ForewarnError):
    """A state directory that belongs to another host than the token."""

    def __init__(self, path: Path, kept: HostName, told: HostName) -> None:
        super().__init__(
            f"{path} belongs to the host {kept}, but the token is for {told}; remove the file, or "
            "set another state_dir."
        )


class FeedRecord:
    """Keeps each line in *file* before it is shown; one thread at a time uses it."""

    def __init__(self, file: FeedFile) -> None:
        self._file = file
        self.lines: Final = tuple(line for line in file.load(decode_line) if line is not None)
        """What was kept when it was opened."""
        self._hello = next((each for each in self.lines[::-1] if isinstance(each, Hello)), None)
        self._is_at_mark = bool(self.lines) and isinstance(self.lines[-1], Mark)
        """Whether the last line was a mark: then all is shown that was told."""

    def keep(self, mirror: Mirror[Pages], text: bytes, line: FeedLine) -> None:
        """Have *line*, which is *text*, on disk before *mirror* shows what it says."""
        if self._is_at_mark and self._file.needs_rewriting:
            self._file.rewrite(mirror.lines())
        self._is_at_mark = isinstance(line, Mark)
        if isinstance(line, Hello):
            self._check(line)
            self._hello = line
            if line.resumed:  # and goes on where the file ends
                return
        self._file.keep(text, is_mark=self._is_at_mark)

    def _check(self, hello: Hello) -> None:
        known = self._hello
        if known is not None and name_key(known.host) != name_key(hello.host):
            raise ForeignStateError(self._file.path, known.host, hello.host)
