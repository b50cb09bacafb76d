"""What commands say when the server does not answer, or not as it should."""

from collections.abc import Generator
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path

from forewarn.cli.errors import CommandError, ExitCode, exit_code_of, hint_for
from forewarn.cli.output import Row
from forewarn.cli.transport import (
    LateReplyError,
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


@contextmanager
def told_failures(server: str, *, is_change: bool = False) -> Generator[None]:
    """Tell people why *server* has not answered; what is a change, it may have made."""
    try:
        yield
    except ServerUrlError as error:
        problem = str(error).rstrip(".")
        raise CommandError(
            f"{server} is not a valid server URL: {problem}.",
            code=ExitCode.USAGE,
            hint="try: --server http://127.0.0.1:8170",
        ) from error
    except UnconnectedError as error:
        raise _unconnected(server, error) from error
    except LateReplyError as error:
        raise CommandError(
            f"{server} has not answered in time; it may still do what was asked.",
            code=ExitCode.TIMED_OUT,
            hint="try: forewarn event list",
        ) from error
    except TransportError as error:
        raise _broken(server, is_change=is_change) from error


def unlike_forewarn(server: str, status: int) -> CommandError:
    """Return what to say about an answer with *status* that we do not understand."""
    message = f"{server} does not answer like forewarn ({status})."
    hint = "try: --server with the address that serve printed as control"
    return CommandError(message, code=ExitCode.FAILED, hint=hint)


def no_certificates(file: Path, error: OSError) -> CommandError:
    """Return what to say about a *file* that should have certificates in it."""
    message = f"{file} is not a file of certificates: {error}."
    hint = "try: --ca-file with the PEM file of the authority"
    return CommandError(message, code=ExitCode.USAGE, hint=hint)


def _unconnected(server: str, error: UnconnectedError) -> CommandError:
    match error:
        case UntrustedError():
            message = f"{server} shows a certificate that is not trusted here: {error}."
            hint = "try: --ca-file FILE, or FOREWARN_CA_FILE"
        case PlainServerError():
            message = f"{server} does not speak TLS."
            hint = "try: --server http://…"
        case _:
            message = f"There is no server at {server}."
            hint = "try: forewarn serve, or --server URL"
    return CommandError(message, code=ExitCode.UNREACHABLE, hint=hint)


def _broken(server: str, *, is_change: bool) -> CommandError:
    message = f"The connection to {server} broke before it had answered"
    if not is_change:
        return CommandError(f"{message}.", code=ExitCode.FAILED, hint="try: it again")
    hint = "before you repeat it, look with: forewarn event list, or forewarn audit"
    return CommandError(
        f"{message}; it may have done what was asked.", code=ExitCode.FAILED, hint=hint
    )
