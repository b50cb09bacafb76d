"""How the agent writes its log. What others have said cannot look like a line of its own."""

import logging
from typing import Final

_PRIORITIES: Final = {"DEBUG": 7, "INFO": 6, "WARNING": 4, "ERROR": 3, "CRITICAL": 2}


def start_logging(*, is_journaled: bool) -> None:
    """Write what is worth knowing to standard error."""
    handler = logging.StreamHandler()
    handler.setFormatter(_JournalFormatter() if is_journaled else _Formatter(_TERMINAL))
    root = logging.getLogger("forewarn")
    root.addHandler(handler)
    root.setLevel(logging.INFO)


def make_printable(text: str) -> str:
    """Return *text* with what ends lines or steers terminals written out."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode("ascii")
        for char in text
    )


_TERMINAL: Final = "%(asctime)s %(levelname)-7s %(message)s"


class _Formatter(logging.Formatter):
    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - as logging calls it
        return make_printable(super().formatMessage(record))


class _JournalFormatter(_Formatter):
    """Puts the priority before each line, where journald looks for it."""

    def format(self, record: logging.LogRecord) -> str:
        priority = _PRIORITIES.get(record.levelname, 6)
        return "\n".join(f"<{priority}>{line}" for line in super().format(record).splitlines())
