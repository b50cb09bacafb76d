"""What commands say when the server does not answer, or not as it should."""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Final

from forewarn.cli.errors import CommandError, ExitCode, exit_code_of, hint_for
from forewarn.cli.output import Row
from forewarn.transport.requests import (
    ExpiredError,
    HungUpError,
    LateReplyError,
    MisnamedError,
    PlainServerError,
    ServerUrlError,
    TransportError,
    UnconnectedError,
    UntrustedError,
)


class ServerRefusedError(CommandError):
    """The server refuses, with a problem document."""

    def __init__(self, problem: Row, server: str = "") -> None:
        kind = str(problem.get("type", "")).rpartition(":")[2]
        sentence = str(problem.get("detail") or problem.get("title") or "The server refused.")
        super().__init__(
            # A token that is not known may just be shown to the wrong server.
            f"{server}: {sentence}" if problem["status"] == HTTPStatus.UNAUTHORIZED else sentence,
            code=exit_code_of(kind, int(problem["status"])),
            hint=hint_for(kind, problem),
        )
        self.problem = problem


_BROKEN: Final = "Lost the connection to {server} before it answered"
_FAILURES: Final[Mapping[type[TransportError], tuple[ExitCode, str, str]]] = {
    ServerUrlError: (
        ExitCode.USAGE,
        "{server} is not a valid server URL: {problem}.",
        "try: --server http://127.0.0.1:8170",
    ),
    ExpiredError: (
        ExitCode.UNREACHABLE,
        "{server} has a certificate that has expired.",
        "renew it, then on the server: systemctl reload forewarn, or send SIGHUP",
    ),
    UntrustedError: (
        ExitCode.UNREACHABLE,
        "{server} has a certificate that is not trusted here: {problem}.",
        "try: --ca-file FILE, or FOREWARN_CA_FILE",
    ),
    MisnamedError: (
        ExitCode.UNREACHABLE,
        "{server} has a certificate for another address: {problem}.",
        "try: --server with an address that the certificate names",
    ),
    HungUpError: (
        ExitCode.UNREACHABLE,
        "{server} closed the connection before TLS was established.",
        "try again",
    ),
    PlainServerError: (
        ExitCode.UNREACHABLE,
        "{server} does not speak TLS.",
        "try: --server http://…",
    ),
    UnconnectedError: (
        ExitCode.UNREACHABLE,
        "Cannot connect to {server}.",
        "try: forewarn serve, or --server URL",
    ),
    LateReplyError: (
        ExitCode.TIMED_OUT,
        "{server} did not answer in time; it may still carry out the request.",
        "try: forewarn event list",
    ),
    TransportError: (ExitCode.FAILED, f"{_BROKEN}.", "try again"),
}
"""What is said of which failure; the first that fits."""
_BROKEN_CHANGE: Final = (
    ExitCode.FAILED,
    f"{_BROKEN}; it may have carried out the request.",
    "before you retry, check with: forewarn event list, or forewarn audit",
)


@contextmanager
def told_failures(server: str, *, is_change: bool = False) -> Generator[None]:
    """Tell people why *server* has not answered; what is a change, it may have made."""
    try:
        yield
    except TransportError as error:
        kind = next(kind for kind in _FAILURES if isinstance(error, kind))
        is_doubtful = is_change and kind is TransportError
        code, message, hint = _BROKEN_CHANGE if is_doubtful else _FAILURES[kind]
        said = message.format(server=server, problem=str(error).rstrip("."))
        raise CommandError(said, code=code, hint=hint) from error


def unlike_forewarn(server: str, status: int) -> CommandError:
    """Return what to say about an answer with *status* that we do not understand."""
    message = f"{server} is not a forewarn server: it answered {status}."
    hint = "try: --server with the address that serve printed as control"
    return CommandError(message, code=ExitCode.FAILED, hint=hint)


def no_certificates(file: Path, error: OSError) -> CommandError:
    """Return what to say about a *file* that should have certificates in it."""
    message = f"{file} is not a valid certificate file: {error}."
    hint = "try: --ca-file with the PEM file of the authority"
    return CommandError(message, code=ExitCode.USAGE, hint=hint)
