"""What every verb begins with: logging, the configuration, the client, and who we are."""

import logging
import socket
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final, ParamSpec

from forewarn.agent.errors import AgentSettingsError
from forewarn.agent.hooks import HookFinder
from forewarn.agent.settings import AgentSettings, Surroundings, read_settings, read_surroundings
from forewarn.agent.state import StateFile
from forewarn.client import Client, EndpointError, RefusedError, UnavailableError
from forewarn.protocol.errors import ForewarnError
from forewarn.protocol.identity import Identity

DONE: Final = 0
FAILED: Final = 1
UNUSABLE: Final = 2
UNREACHABLE: Final = 6
UNFINISHED: Final = 75

_STATUSES: Final[tuple[tuple[type[ForewarnError], int], ...]] = (
    (AgentSettingsError, UNUSABLE),
    (EndpointError, UNUSABLE),
    (UnavailableError, UNREACHABLE),
    (ForewarnError, FAILED),
)
"""What the process ends with after an error: the first that fits."""

_PRIORITIES: Final = {"DEBUG": 7, "INFO": 6, "WARNING": 4, "ERROR": 3, "CRITICAL": 2}
_TERMINAL: Final = "%(asctime)s %(levelname)-7s %(message)s"

_log = logging.getLogger("forewarn.agent")
_P = ParamSpec("_P")


def concluded(verb: Callable[_P, int]) -> Callable[_P, int]:
    """Let *verb* return what the process ends with, also after failing as we can tell it may."""

    def run(*arguments: _P.args, **options: _P.kwargs) -> int:
        try:
            return verb(*arguments, **options)
        except ForewarnError as error:
            print(f"forewarn-agent: {make_printable(str(error))}", file=sys.stderr)  # noqa: T201
            return next(status for kind, status in _STATUSES if isinstance(error, kind))

    return run


def prepare(file: Path | None) -> tuple[AgentSettings, Surroundings]:
    """Return what the configuration and the environment say, with logging set up for them."""
    surroundings = read_surroundings()
    start_logging(is_journaled=surroundings.is_journaled)
    return read_settings(file, surroundings), surroundings


def make_client(settings: AgentSettings, *, patience: float = 5, timeout: float = 10) -> Client:
    """Return a client for the server of the configuration, or whichever it finds."""
    return Client(settings.endpoint, patience=patience, timeout=timeout)


def make_finder(settings: AgentSettings, state: StateFile) -> HookFinder:
    """Return who finds the hooks of the configuration, and remembers where they were."""
    return HookFinder(settings.hooks_dir, settings.hooks, state)


def find_identity(settings: AgentSettings, client: Client, state: StateFile) -> Identity:
    """Return who this machine is, by a name that may be wrong if the server does not say.

    One that does not answer anything else either is away: UnavailableError.
    """
    try:
        return ask_identity(settings, client, state)
    except RefusedError:
        return guess_identity(state)
    except UnavailableError:
        client.document()
        return guess_identity(state)


def ask_identity(settings: AgentSettings, client: Client, state: StateFile) -> Identity:
    """Return who this machine is, as configured or as the server says.

    The host name does not count beside that: it may be the name of another machine.
    """
    if settings.name is not None:
        return Identity(name=settings.name)
    me = replace(client.whoami(), host_name="")
    state.keep_name(me.name)
    return me


def guess_identity(state: StateFile) -> Identity:
    """Return who this machine is if it has the name it had last, or else that of its host."""
    last = state.recall_name()
    if last is not None:
        _log.warning("name_not_told last_name=%s hint='set name if Resources differ'", last)
        return Identity(name=last)
    host_name = socket.gethostname()
    _log.warning("name_not_told host_name=%s hint='set name if Resources differ'", host_name)
    return Identity(name=host_name, host_name=host_name)


def start_logging(*, is_journaled: bool) -> None:
    """Write what is worth knowing to standard error.

    What others have said cannot look like a line of its own.
    """
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


class _Formatter(logging.Formatter):
    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - as logging calls it
        return make_printable(super().formatMessage(record))


class _JournalFormatter(_Formatter):
    """Puts the priority before each line, where journald looks for it."""

    def format(self, record: logging.LogRecord) -> str:
        priority = _PRIORITIES.get(record.levelname, 6)
        return "\n".join(f"<{priority}>{line}" for line in super().format(record).splitlines())
