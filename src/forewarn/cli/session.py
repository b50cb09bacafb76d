"""A command's conversation with the control API, and the options every such command has."""

from __future__ import annotations

import inspect
import json
import os
import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from datetime import datetime
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Concatenate, Final, ParamSpec
from urllib.parse import quote, urlencode

import typer

from forewarn.cli.errors import CommandError, ExitCode, confirm, reported_errors
from forewarn.cli.failures import (
    ServerRefusedError,
    no_certificates,
    told_failures,
    unlike_forewarn,
)
from forewarn.cli.ids import complete_path
from forewarn.cli.options import keyword, option, switch
from forewarn.cli.output import Output, OutputOption, Row, print_answer, print_line, told_from
from forewarn.cli.server_start import await_start, is_starting
from forewarn.cli.settings import load_cli_settings, url_of
from forewarn.transport.requests import (
    BrokenReplyError,
    ServerReply,
    ServerRequest,
    TransportError,
    opened,
    send,
)
from forewarn.wording.addresses import is_loopback_url

if TYPE_CHECKING:
    import ssl  # costs more than all else here, and is not used for help and completion

P = ParamSpec("P")

_ONWARD: Final = frozenset({"virtual_machines", "hosts"})
"""The lists that are in fleet order."""
_PATIENCE: Final = 60.0
TEST_PATIENCE: Final = 150.0
"""Longer than any gate or target of notifications may take."""
_STARTING: Final = 60.0
"""How long a server may take to start; if it dies, nobody waits for it."""
_OPTIONS: Final = (
    keyword("output", OutputOption, Output.TABLE),
    keyword(
        "utc", Annotated[bool, switch("Show absolute times only, in UTC.", "--utc")], default=False
    ),
    keyword(
        "server",
        Annotated[str | None, option("URL", "URL of the control API; also FOREWARN_SERVER.")],
    ),
    keyword("token", Annotated[str | None, option("TOKEN", "Access token; also FOREWARN_TOKEN.")]),
    keyword(
        "ca_file",
        Annotated[Path | None, option("FILE", "CA certificates to trust; also FOREWARN_CA_FILE.")],
    ),
)
_OF_SESSION: Final = ("output", "utc", "yes", "dry_run", "wait", "timeout")


@dataclass(frozen=True, slots=True)
class Session:
    """Where the server is, who is asking, how to go about it and how to print the answer.

    In a dry run the server says what would come of each change, and nothing does.
    """

    server: str
    token: str | None
    output: Output = Output.TABLE
    ca_file: Path | None = None
    utc: bool = False
    patience: float | None = _PATIENCE
    yes: bool = False
    dry_run: bool = False
    wait: bool = False
    timeout: str | None = None

    def get(self, *path: str, **query: object) -> Any:
        """Return what is at *path*."""
        return self._ask("GET", path, query=query.items())

    def list(self, *path: str, limit: int | None = None, **query: object) -> Row:
        """Return the list at *path*: the page of *limit*, or every page there is.

        Pages of what has a history go back in time; a fleet goes on in its order.
        """
        noun = path[0].replace("-", "_")
        asked = {**query, "limit": limit} if limit else query
        reply = self._send("GET", path, query=asked.items())
        found: dict[str, Any] = self._decode(reply)
        while limit is None and (following := reply.next_page):
            reply = self._send("GET", path, query=following)
            page = self._decode(reply)[noun]
            found[noun] = [*found[noun], *page] if noun in _ONWARD else [*page, *found[noun]]
        return found

    def fetch(self, name: str) -> ServerReply:
        """Return the answer of what the server has beside the API, such as /healthz."""
        with told_failures(self.server):
            return self._checked(send(self._request("GET", f"/{name}")))

    def post(self, *path: str, body: object = None, takes_key: bool = True, **flags: bool) -> Any:
        """Have something done at *path* and return the answer; or what it would be.

        What *takes_key* is asked for again if the connection breaks, and done once all the same.
        """
        query = self._flags(**flags)
        return self._ask("POST", path, query=query, body=body, takes_key=takes_key)

    def post_followed(self, *path: str, body: object, note: Callable[[Row], None]) -> Any:
        """Have something done that takes long: tell *note* how far it is, return the answer."""
        row: Row = {"step": "none yet"}
        request = self._request("POST", _place(path), body=body, Accept="application/x-ndjson")
        with told_failures(self.server, is_change=True), opened(request) as reply:
            if not reply.is_success:
                self._checked(reply.read())
            for line in reply.lines():
                row = json.loads(line)
                if "step" in row:
                    note(row)
            if "step" in row:
                raise BrokenReplyError("the answer is missing")
        if "type" in row:
            raise ServerRefusedError(row)
        return row

    def put(self, *path: str, body: object = None) -> Any:
        """Have what is at *path* be as *body* says."""
        return self._ask("PUT", path, body=body)

    def patch(self, *path: str, body: object, **flags: bool) -> Any:
        """Have the fields that *body* names changed at *path*; or return what would come of it."""
        return self._ask("PATCH", path, query=self._flags(**flags), body=body, takes_key=True)

    def delete(self, *path: str) -> Any:
        """Remove what is at *path*, or tell what that would do."""
        return self._ask("DELETE", path, query=self._flags())

    def confirm(self, question: str) -> None:
        """Go on only if a person says so, or has said so before, or nothing is done anyway."""
        if not (self.yes or self.dry_run):
            confirm(question)

    def show(self, answer: Any, print_it: Callable[[Any], None]) -> None:
        """Print *answer* as asked for: with *print_it*, or as it is; say that it was a dry run."""

        def print_all(got: Any) -> None:
            print_it(got)
            if self.dry_run:
                print_line("Dry run: nothing was changed.")

        now = None
        if self.output is Output.TABLE and not self.utc and sys.stdout.isatty():
            # Not by the clock of this machine: theirs may be virtual, or ours wrong.
            with suppress(CommandError):  # what was done is told all the same
                now = datetime.fromisoformat(self.get("clock")["now"])
        with nullcontext() if now is None else told_from(now):
            print_answer(answer, self.output, print_all)

    def show_removed(self, answer: Row, what: str) -> None:
        """Print that *what* is removed, or would be."""
        said = "would remove" if self.dry_run else "removed"
        self.show(answer, lambda _: print_line(f"{said} {what}"))

    def get_bytes(self, *path: str, **query: object) -> bytes:
        """Return what is at *path* as it is."""
        return self._send("GET", path, query=query.items()).content

    @contextmanager
    def stream(self, *path: str, **query: str | int) -> Generator[Iterator[str]]:
        """Open the stream at *path*, and give its lines as they come.

        What goes wrong while they do is a TransportError.
        """
        with ExitStack() as closing:
            with told_failures(self.server):
                request = self._request("GET", _place(path), query=query.items())
                reply = closing.enter_context(opened(request))
                if not reply.is_success:
                    self._checked(reply.read())
            yield reply.lines()

    def _flags(self, **given: bool) -> Iterable[tuple[str, str]]:
        flags = {"dry_run": self.dry_run, **given}
        return [(name, "true") for name, is_given in flags.items() if is_given]

    def _ask(self, method: str, path: tuple[str, ...], **request: Any) -> Any:
        return self._decode(self._send(method, path, **request))

    def _decode(self, reply: ServerReply) -> Any:
        try:
            return reply.json()
        except ValueError:
            raise unlike_forewarn(self.server, reply.status) from None

    def _send(
        self, method: str, path: tuple[str, ...], *, takes_key: bool = False, **request: Any
    ) -> ServerReply:
        place = _place(complete_path(self.get, path))
        if takes_key:
            request["Idempotency-Key"] = os.urandom(16).hex()
        asked = self._request(method, place, **request)
        with told_failures(self.server, is_change=method != "GET"):
            try:
                reply = send(asked)
            except BrokenReplyError as error:
                if not takes_key:
                    raise
                reply = _send_again(asked, error)
        return self._checked(reply)

    def _request(
        self,
        method: str,
        place: str,
        *,
        query: Iterable[tuple[str, object]] = (),
        body: object = None,
        **headers: str,
    ) -> ServerRequest:
        asked = urlencode([*query], doseq=True)
        if self.token is not None:
            headers["Authorization"] = f"Bearer {self.token}"
        if body is not None:
            headers["Content-Type"] = "application/json"
        return ServerRequest(
            method=method,
            url=f"{self.server}{place}{'?' if asked else ''}{asked}",
            headers=headers,
            body=None if body is None else json.dumps(body).encode(),
            patience=self.patience,
            trust=self._trusted(),
        )

    def _trusted(self) -> ssl.SSLContext | None:
        if self.ca_file is None or not self.server.startswith("https:"):
            return None
        import ssl

        try:
            return ssl.create_default_context(cafile=self.ca_file)
        except OSError as error:
            raise no_certificates(self.ca_file, error) from error

    def _checked(self, reply: ServerReply) -> ServerReply:
        if reply.is_success:
            return reply
        try:
            problem = {**reply.json(), "status": reply.status}
        except (ValueError, TypeError):
            raise unlike_forewarn(self.server, reply.status) from None
        raise ServerRefusedError(problem, self.server)


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
    if token is not None:
        _refuse_odd_token(token)
    if token is not None and not settings.insecure_control:
        _refuse_clear_text(server)
    return Session(
        server=server,
        token=token,
        ca_file=options.get("ca_file") or settings.ca_file,
        patience=patience,
        **{name: options[name] for name in _OF_SESSION if name in options},
    )


def _refuse_odd_token(token: str) -> None:
    if not (token.isascii() and token.isprintable()):
        raise CommandError(
            "The token contains invalid characters.",
            code=ExitCode.USAGE,
            hint="try: --token with what forewarn token create printed",
        )


def _refuse_clear_text(server: str) -> None:
    """Refuse to send a token where others could read it on the way."""
    if not (server.lower().startswith("https:") or is_loopback_url(server)):
        raise CommandError(
            f"Refused to send the token to {server} over plain HTTP, which others can read.",
            code=ExitCode.USAGE,
            hint="try: https://, or set FOREWARN_INSECURE_CONTROL=true if the network is encrypted",
        )


def command(
    app: typer.Typer, name: str, *more: inspect.Parameter
) -> Callable[[Callable[Concatenate[Session, P], None]], Callable[Concatenate[Session, P], None]]:
    """Register a function as the verb *name*: its own options, *more*, and those of every session.

    The function is not given the latter two: they say how its session behaves.
    """
    of_session = (*more, *_OPTIONS)

    def register(
        function: Callable[Concatenate[Session, P], None],
    ) -> Callable[Concatenate[Session, P], None]:
        verb: Callable[..., None] = function

        @wraps(function)
        def run(*_: Any, **given: Any) -> None:
            options = {each.name: given.pop(each.name) for each in of_session}
            with reported_errors():
                verb(open_session(options, warn=_warn, start_seconds=_STARTING), **given)

        own = list(inspect.signature(function).parameters.values())[1:]
        keywords = [parameter.replace(kind=parameter.KEYWORD_ONLY) for parameter in own]
        run.__dict__["__signature__"] = inspect.Signature([*keywords, *of_session])
        app.command(name)(run)
        return function

    return register


def _warn(problem: str) -> None:
    print_line(f"forewarn: {problem}", err=True)


def _place(path: tuple[str, ...]) -> str:
    if "" in path:
        # As from a variable of a script that was never set.
        raise CommandError("A name or id cannot be empty.", code=ExitCode.USAGE)
    return "/".join(("/api/v1", *(quote(part, safe="") for part in path)))


def _send_again(asked: ServerRequest, broken: BrokenReplyError) -> ServerReply:
    try:
        return send(asked)
    except TransportError:
        raise broken from None  # that nobody listens any more does not undo the first time
