"""A command's conversation with the control API, and the options every such command has."""

from __future__ import annotations

import inspect
import json
import secrets
import ssl
import sys
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from datetime import datetime
from functools import wraps
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Concatenate, Final, ParamSpec
from urllib.parse import parse_qsl, quote, urlsplit

import typer

from forewarn.cli.errors import CommandError, ExitCode, exit_code_of, hint_for, reported_errors
from forewarn.cli.ids import complete_path
from forewarn.cli.output import Output, OutputOption, Row, print_answer, print_line, told_from
from forewarn.cli.settings import is_loopback, load_cli_settings, url_of
from forewarn.cli.starting import await_start, is_starting

if TYPE_CHECKING:
    import httpx2  # costs more than all else here, and is not used for help and completion

P = ParamSpec("P")

_ONWARD: Final = frozenset({"virtual_machines", "hosts"})
"""The lists that are in fleet order."""
_PATIENCE: Final = 60.0
_CONNECTING: Final = 5.0
_STARTING: Final = 60.0
"""How long a server may take to start; if it dies, nobody waits for it."""
_OPTIONS: Final = (
    inspect.Parameter(
        "output",
        inspect.Parameter.KEYWORD_ONLY,
        default=Output.TABLE,
        annotation=OutputOption,
    ),
    inspect.Parameter(
        "utc",
        inspect.Parameter.KEYWORD_ONLY,
        default=False,
        annotation=Annotated[bool, typer.Option("--utc", help="No relative times in tables.")],
    ),
    inspect.Parameter(
        "server",
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[
            str | None,
            typer.Option(help="URL of the control API; also FOREWARN_SERVER.", metavar="URL"),
        ],
    ),
    inspect.Parameter(
        "token",
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[
            str | None, typer.Option(help="Access token; also FOREWARN_TOKEN.", metavar="TOKEN")
        ],
    ),
    inspect.Parameter(
        "ca_file",
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[
            Path | None,
            typer.Option(help="CA certificates to trust; also FOREWARN_CA_FILE.", metavar="FILE"),
        ],
    ),
)


class RefusedError(CommandError):
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


@dataclass(frozen=True, slots=True)
class Session:
    """Where the server is, who is asking, and how to print the answer."""

    server: str
    token: str | None
    output: Output
    ca_file: Path | None = None
    utc: bool = False
    patience: float = _PATIENCE

    def get(self, *path: str, **query: object) -> Any:
        """Return what is at *path*."""
        return self._ask("GET", path, params=query)

    def list(self, noun: str, *path: str, limit: int | None = None, **query: object) -> Row:
        """Return the list *noun* at *path*: the page of *limit*, or every page there is.

        Pages of what has a history go back in time; a fleet goes on in its order.
        """
        answer = self._send("GET", path, params={**query, **({"limit": limit} if limit else {})})
        found: dict[str, Any] = self._decode(answer)
        while limit is None and (link := answer.links.get("next")):
            answer = self._send("GET", path, params=parse_qsl(urlsplit(link["url"]).query))
            page = self._decode(answer)[noun]
            found[noun] = [*found[noun], *page] if noun in _ONWARD else [*page, *found[noun]]
        return found

    def text(self, *path: str, **query: object) -> str:
        """Return what is at *path*, which is not JSON."""
        return self._send("GET", path, params=query).text

    def fetch(self, name: str) -> httpx2.Response:
        """Return the answer of what the server has beside the API, such as /healthz."""
        url, headers = f"{self.server}/{name}", self._address(())[1]
        with self._reported(), self._client() as client:
            answer = client.get(url, headers=headers)
        self._check(answer)
        return answer

    def post(
        self,
        *path: str,
        body: object = None,
        patience: float | None = _PATIENCE,
        dry_run: bool = False,
        takes_key: bool = True,
        as_is: bool = False,
    ) -> Any:
        """Have something done at *path* and return the answer; or what it would be.

        What *takes_key* is asked for again if the connection breaks, and done once all the same.
        """
        key = secrets.token_hex(16) if takes_key else None
        timeout = self._timeout() if patience == _PATIENCE else _wait_up_to(patience)
        request = {"json": body, "timeout": timeout, "key": key}
        return self._ask("POST", path, params=_flags(dry_run=dry_run, as_is=as_is), **request)

    def post_followed(self, *path: str, body: object, note: Callable[[Row], None]) -> Any:
        """Have something done that takes long: tell *note* how far it is, return the answer."""
        row: Row = {}
        url, headers = self._address(path)
        headers["Accept"] = "application/x-ndjson"
        with (
            self._reported(is_change=True),
            self._client() as client,
            client.stream("POST", url, headers=headers, json=body) as answer,
        ):
            if not answer.is_success:
                answer.read()
                self._check(answer)
            for line in answer.iter_lines():
                row = json.loads(line)
                if "step" in row:
                    note(row)
        if "type" in row:
            raise RefusedError(row)
        return row

    def put(self, *path: str, body: object = None) -> Any:
        """Have what is at *path* be as *body* says."""
        return self._ask("PUT", path, json=body)

    def patch(self, *path: str, body: object, **flags: bool) -> Any:
        """Have the fields that *body* names changed at *path*; or return what would come of it."""
        key = secrets.token_hex(16)
        return self._ask("PATCH", path, params=_flags(**flags), json=body, key=key)

    def delete(self, *path: str, dry_run: bool = False) -> Any:
        """Remove what is at *path*, or tell what that would do."""
        return self._ask("DELETE", path, params=_flags(dry_run=dry_run))

    def show(self, answer: Any, print_it: Callable[[Any], None]) -> None:
        """Print *answer* as asked for: with *print_it*, or as it is."""
        now = None
        if self.output is Output.TABLE and not self.utc and sys.stdout.isatty():
            # Not by the clock of this machine: theirs may be virtual, or ours wrong.
            with suppress(CommandError):  # what was done is told all the same
                now = datetime.fromisoformat(self.get("clock")["now"])
        with nullcontext() if now is None else told_from(now):
            print_answer(answer, self.output, print_it)

    def get_bytes(self, *path: str, **query: object) -> bytes:
        """Return what is at *path* as it is."""
        return self._send("GET", path, params=query).content

    @contextmanager
    def stream(self, *path: str, **query: str | int) -> Generator[Iterator[str]]:
        """Open the stream at *path*, and give its lines as they come.

        What goes wrong while they do is a TransportError.
        """
        with ExitStack() as closing, self._client() as client:
            with self._reported():
                url, headers = self._address(path)
                asked = client.stream("GET", url, headers=headers, params=query)
                answer = closing.enter_context(asked)
                if not answer.is_success:
                    answer.read()
                    self._check(answer)
            yield answer.iter_lines()

    def _ask(self, method: str, path: tuple[str, ...], **request: Any) -> Any:
        return self._decode(self._send(method, path, **request))

    def _decode(self, answer: httpx2.Response) -> Any:
        try:
            return answer.json()
        except ValueError:
            raise self._unlike_forewarn(answer) from None

    def _send(
        self, method: str, path: tuple[str, ...], *, key: str | None = None, **request: Any
    ) -> httpx2.Response:
        import httpx2

        url, headers = self._address(complete_path(self.get, path))
        if key is not None:
            headers["Idempotency-Key"] = key
        with self._reported(is_change=method != "GET"), self._client() as client:
            asked = client.build_request(method, url, headers=headers, **request)
            try:
                answer = client.send(asked)
            except (
                httpx2.ReadError,
                httpx2.WriteError,
                httpx2.CloseError,
                httpx2.RemoteProtocolError,
            ) as error:  # something was sent
                if key is None:
                    raise
                answer = _send_again(client, asked, error)
        self._check(answer)
        return answer

    def _client(self) -> httpx2.Client:
        import httpx2

        # No proxies or credentials from the environment: only settings.py reads that.
        return httpx2.Client(trust_env=False, timeout=self._timeout(), verify=self._trusted())

    def _timeout(self) -> httpx2.Timeout:
        return _wait_up_to(self.patience)

    def _address(self, path: tuple[str, ...]) -> tuple[str, dict[str, str]]:
        if "" in path:
            # As from a variable of a script that was never set.
            raise CommandError("A name or an id is empty.", code=ExitCode.USAGE)
        place = "/".join(quote(part, safe="") for part in path)
        headers = {} if self.token is None else {"Authorization": f"Bearer {self.token}"}
        return f"{self.server}/api/v1/{place}", headers

    @contextmanager
    def _reported(self, *, is_change: bool = False) -> Generator[None]:
        import httpx2

        try:
            yield
        except httpx2.TimeoutException as error:
            raise self._timed_out(error) from error
        except (httpx2.UnsupportedProtocol, httpx2.InvalidURL, UnicodeError) as error:
            problem = str(error).rstrip(".")
            message = f"{self.server} is not a valid server URL: {problem}."
            raise CommandError(
                message, code=ExitCode.USAGE, hint="try: --server http://127.0.0.1:8170"
            ) from error
        except httpx2.ConnectError as error:
            raise self._untrusted(error) or self._unreachable() from error
        except httpx2.TransportError as error:
            raise self._broken(is_change=is_change) from error

    def _check(self, answer: httpx2.Response) -> None:
        if answer.is_success:
            return
        try:
            problem = {**answer.json(), "status": answer.status_code}
        except (ValueError, TypeError):
            raise self._unlike_forewarn(answer) from None
        raise RefusedError(problem, self.server)

    def _trusted(self) -> ssl.SSLContext | bool:
        if not self.server.startswith("https:"):
            return False  # to read the certificates of this machine would be for nothing
        if self.ca_file is None:
            return True
        try:
            return ssl.create_default_context(cafile=self.ca_file)
        except OSError as error:
            message = f"{self.ca_file} is not a file of certificates: {error}."
            hint = "try: --ca-file with the PEM file of the authority"
            raise CommandError(message, code=ExitCode.USAGE, hint=hint) from error

    def _untrusted(self, error: BaseException | None) -> CommandError | None:
        while error is not None and not isinstance(error, ssl.SSLError):
            error = error.__cause__ or error.__context__
        if error is None:
            return None
        if isinstance(error, ssl.SSLCertVerificationError):
            message = f"{self.server} shows a certificate that is not trusted here: "
            message += f"{error.verify_message}."
            hint = "try: --ca-file FILE, or FOREWARN_CA_FILE"
        else:
            message = f"{self.server} does not speak TLS."
            hint = "try: --server http://…"
        return CommandError(message, code=ExitCode.UNREACHABLE, hint=hint)

    def _unlike_forewarn(self, answer: httpx2.Response) -> CommandError:
        message = f"{self.server} does not answer like forewarn ({answer.status_code})."
        hint = "try: --server with the address that serve printed as control"
        return CommandError(message, code=ExitCode.FAILED, hint=hint)

    def _timed_out(self, error: httpx2.TimeoutException) -> CommandError:
        import httpx2

        if isinstance(error, httpx2.ConnectTimeout):
            return self._unreachable()
        message = f"{self.server} has not answered in time; it may still do what was asked."
        return CommandError(message, code=ExitCode.TIMED_OUT, hint="try: forewarn event list")

    def _broken(self, *, is_change: bool) -> CommandError:
        message = f"The connection to {self.server} broke before it had answered"
        if not is_change:
            return CommandError(f"{message}.", code=ExitCode.FAILED, hint="try: it again")
        hint = "before you repeat it, look with: forewarn event list, or forewarn audit"
        return CommandError(
            f"{message}; it may have done what was asked.", code=ExitCode.FAILED, hint=hint
        )

    def _unreachable(self) -> CommandError:
        return CommandError(
            f"There is no server at {self.server}.",
            code=ExitCode.UNREACHABLE,
            hint="try: forewarn serve, or --server URL",
        )


def open_session(
    options: Mapping[str, Any],
    *,
    patience: float = _PATIENCE,
    warn: Callable[[str], None] = lambda _: None,
    start_seconds: float = 0,
) -> Session:
    """Return the session that *options* ask for, and the environment where they do not.

    A server that is starting in the state directory has *start_seconds* to be ready.
    """
    settings = load_cli_settings()
    is_named = options.get("server") or settings.is_server_given
    if not is_named and is_starting(settings.state_dir):
        await_start(settings.state_dir, start_seconds)
        settings = load_cli_settings()
    server = url_of(options.get("server") or settings.server)
    token = options.get("token") or settings.find_token(server, warn)
    if token is not None and not settings.insecure_control:
        _refuse_clear_text(server)
    return Session(
        server=server,
        token=token,
        output=options.get("output", Output.TABLE),
        ca_file=options.get("ca_file") or settings.ca_file,
        utc=options.get("utc", False),
        patience=patience,
    )


def _refuse_clear_text(server: str) -> None:
    """Refuse to send a token where others could read it on the way."""
    if server.lower().startswith("http:") and not is_loopback(server):
        raise CommandError(
            f"{server} would receive the token over plain HTTP, which others can read.",
            code=ExitCode.USAGE,
            hint="try: https://, or set FOREWARN_INSECURE_CONTROL=true if the network encrypts",
        )


def command(
    app: typer.Typer, name: str
) -> Callable[[Callable[Concatenate[Session, P], None]], Callable[Concatenate[Session, P], None]]:
    """Register a function as the verb *name*: its own parameters, and those of every session."""

    def register(
        function: Callable[Concatenate[Session, P], None],
    ) -> Callable[Concatenate[Session, P], None]:
        verb: Callable[..., None] = function

        @wraps(function)
        def run(*_: Any, **given: Any) -> None:
            options = {option.name: given.pop(option.name) for option in _OPTIONS}
            with reported_errors():
                verb(open_session(options, warn=_warn, start_seconds=_STARTING), **given)

        own = list(inspect.signature(function).parameters.values())[1:]
        keywords = [parameter.replace(kind=parameter.KEYWORD_ONLY) for parameter in own]
        run.__dict__["__signature__"] = inspect.Signature([*keywords, *_OPTIONS])
        app.command(name)(run)
        return function

    return register


def _warn(problem: str) -> None:
    print_line(f"forewarn: {problem}", err=True)


def _wait_up_to(patience: float | None) -> httpx2.Timeout:
    import httpx2

    connecting = _CONNECTING if patience is None else min(_CONNECTING, patience)
    return httpx2.Timeout(patience, connect=connecting)


def _send_again(client: httpx2.Client, asked: httpx2.Request, broken: Exception) -> httpx2.Response:
    import httpx2

    try:
        return client.send(asked)
    except httpx2.TransportError:
        raise broken from None  # that nobody listens any more does not undo the first time


def _flags(**given: bool) -> dict[str, bool]:
    return {name: True for name, is_given in given.items() if is_given}
