"""What an endpoint answers over time, polled as politely as a client should, into a file.

It only ever reads. One poll begins in an interval at most, later ones if the endpoint asks for that
or is in trouble; where it can wait for a change, it is let wait.
"""

import json
import math
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, Final

from forewarn.cli.errors import CommandError, ExitCode
from forewarn.cli.output import print_line
from forewarn.domain.phrases import count_of
from forewarn.files.recording import (
    HEADERS,
    STATUSES,
    RecordedAnswer,
    Recording,
    write_answer,
    write_beginning,
)
from forewarn.files.tables import is_plain
from forewarn.protocol.dates import read_retry_after
from forewarn.protocol.document import decode_document
from forewarn.protocol.errors import MalformedDocumentError
from forewarn.transport.requests import (
    LargeReplyError,
    LateReplyError,
    ServerReply,
    ServerRequest,
    ServerUrlError,
    TransportError,
    send,
)

_TIMEOUT: Final = 10.0
_SHORTEST: Final = 0.001
_LONGEST_WAIT: Final = 10
_LARGEST: Final = 4 * 2**20
_BACK_OFF: Final = (1.0, 2.0, 4.0, 8.0, 16.0, 30.0)
"""For how many seconds an endpoint in trouble is left alone, the longer that lasts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordingOrder:
    """What to record where, how often to poll, and for how many seconds at most."""

    url: str
    api_version: str
    output: Path
    every: float
    seconds: float = math.inf
    redact: bool = False


def record(order: RecordingOrder, began_at: str) -> None:
    """Record until the time is over, or until Ctrl-C."""
    _refuse_secrets(order.url)
    aliases = _Aliases()
    answers = _Poller(order).changes()
    first = next(answers)
    _require_document(order.url, first)
    source = "" if order.redact else order.url
    recording = Recording(source=source, api_version=order.api_version, began_at=began_at)
    number = 0
    with _tape(order.output) as add, suppress(KeyboardInterrupt):
        add(write_beginning(recording))
        print_line(f"Recording {order.url} into {order.output}, until Ctrl-C.", err=True)
        for answer in chain([first], answers):
            kept = aliases.redact(answer) if order.redact else answer
            add(write_answer(kept))
            number += 1
            print_line(f"{f'+{answer.at:.1f}s':<9} {_describe(kept)}", err=True)
    print_line(f"{order.output} has {count_of(number, 'answer')}.", err=True)
    for name, alias in aliases.names.items():
        print_line(f"  {name} was renamed to {alias}", err=True)


class _Poller:
    """Asks one endpoint for its document, again and again."""

    def __init__(self, order: RecordingOrder) -> None:
        path = f"/metadata/scheduledevents?api-version={order.api_version}"
        self._url = f"{order.url.rstrip('/')}{path}"
        self._every = order.every
        self._seconds = order.seconds
        self._began: float | None = None
        self._next = 0.0
        self._etag: str | None = None
        self._failures = 0

    def changes(self) -> Iterator[RecordedAnswer]:
        """Yield each answer that is not like the one before, until the time is over."""
        last: RecordedAnswer | None = None
        while last is None or self._left() > 0:
            answer = self._poll()
            if answer is not None and not answer.is_like(last):
                last = answer
                yield answer
            time.sleep(max(min(self._next - time.monotonic(), self._left()), 0))

    def _poll(self) -> RecordedAnswer | None:
        """Return what is answered now; None if that is what the last answer was."""
        began, retry_after = time.monotonic(), 0.0
        try:
            reply = send(self._request(), _LARGEST)
        except ServerUrlError as error:
            message = f"--from: {self._url!r} is not a valid URL: {error}."
            raise CommandError(message, code=ExitCode.USAGE) from error
        except TransportError as error:
            answer = None if self._is_over() else self._note_silence(_explain(error))
        else:
            answer = self._read(reply)
            retry_after = read_retry_after(reply.headers) or 0
        is_trouble = answer is not None and (answer.no_answer or answer.status >= 400)
        self._failures = self._failures + 1 if is_trouble else 0
        pauses = (0.0, *_BACK_OFF)
        pause = max(pauses[min(self._failures, len(_BACK_OFF))], retry_after)
        self._next = max(began + self._every, time.monotonic() + pause)
        return answer

    def _request(self) -> ServerRequest:
        headers, wait = {"Metadata": "true"}, 0
        if self._etag is not None:
            wait = max(math.ceil(min(_LONGEST_WAIT, self._left())), 1)
            headers |= {"If-None-Match": self._etag, "Prefer": f"wait={wait}"}
        seconds = _TIMEOUT + wait
        if self._began is not None:
            seconds = max(min(seconds, self._left()), _SHORTEST)
        return ServerRequest(
            method="GET", url=self._url, headers=headers, patience=seconds, within=seconds
        )

    def _read(self, reply: ServerReply) -> RecordedAnswer | None:
        if reply.status == 304 and self._etag is not None:
            return None
        if reply.status not in STATUSES:
            return self._note_silence(f"{reply.status} is not a valid status")
        self._etag = reply.headers.get("etag") if reply.status == 200 else None
        found = {name: reply.headers.get(name.lower(), "").strip() for name in HEADERS}
        return RecordedAnswer(
            at=self._passed(),
            status=reply.status,
            headers={name: text for name, text in found.items() if text and is_plain(text)},
            body=reply.content,
        )

    def _note_silence(self, reason: str) -> RecordedAnswer:
        self._etag = None
        return RecordedAnswer(at=self._passed(), no_answer=reason)

    def _passed(self) -> float:
        now = time.monotonic()
        self._began = now if self._began is None else self._began
        return now - self._began

    def _is_over(self) -> bool:
        return self._began is not None and self._left() <= 0

    def _left(self) -> float:
        return self._seconds - self._passed()


class _Aliases:
    """Names of virtual machines, and what they are called in a recording instead."""

    def __init__(self) -> None:
        self.names: dict[str, str] = {}
        self._aliases: dict[str, str] = {}

    def redact(self, answer: RecordedAnswer) -> RecordedAnswer:
        """Return *answer* with no name in its document; another kind of body stays."""
        try:
            content = json.loads(answer.body)
        except (ValueError, RecursionError):
            return answer
        events = content.get("Events") if isinstance(content, dict) else None
        if not isinstance(events, list):
            return answer
        renamed = [self._rename_resources(event) for event in events]
        redacted = {**content, "Events": [self._rename_described(event) for event in renamed]}
        text = json.dumps(redacted, separators=(",", ":"), ensure_ascii=False)
        # A surrogate that stands alone has no UTF-8; with a backslash it is JSON again.
        return replace(answer, body=text.encode(errors="backslashreplace"))

    def _rename_resources(self, event: Any) -> Any:
        if not (isinstance(event, dict) and isinstance(event.get("Resources"), list)):
            return event
        return {**event, "Resources": [self._alias(str(name)) for name in event["Resources"]]}

    def _rename_described(self, event: Any) -> Any:
        """Rename what *event* describes, in one pass: a new name may be an old one, too."""
        if not (isinstance(event, dict) and isinstance(event.get("Description"), str)):
            return event
        names = sorted(filter(None, self.names), key=len, reverse=True)
        any_name = "|".join(f"({re.escape(name)})" for name in names)
        if not any_name:
            return event
        described = re.sub(
            rf"(?<![\w-])(?:{any_name})(?![\w-])",
            lambda found: self.names[names[(found.lastindex or 0) - 1]],
            event["Description"],
            flags=re.IGNORECASE,
        )
        return {**event, "Description": described}

    def _alias(self, name: str) -> str:
        """Return the new name of *name*, which is the same machine in any case."""
        key = name.casefold()
        if key not in self._aliases:
            self._aliases[key] = self.names[name] = f"vm-{len(self._aliases)}"
        return self._aliases[key]


@contextmanager
def _tape(path: Path) -> Iterator[Callable[[str], None]]:
    """Give a function that adds a text to the new file at *path*, all of it or nothing."""
    try:
        file = path.open("xb", buffering=0)
    except FileExistsError as error:
        message = f"{path} already exists."
        hint = "try: --output with another name"
        raise CommandError(message, code=ExitCode.REFUSED, hint=hint) from error
    except OSError as error:
        message = f"{path} cannot be written: {error.strerror}."
        raise CommandError(message, code=ExitCode.FAILED) from error

    def add(text: str) -> None:
        size, content = file.tell(), text.encode()
        try:
            while content:
                content = content[file.write(content) :]
            os.fsync(file.fileno())
        except OSError as error:
            with suppress(OSError):
                file.truncate(size)
            message = f"{path} cannot be written: {error.strerror}; it is complete up to here."
            raise CommandError(message, code=ExitCode.FAILED) from error

    with file:
        yield add


def _refuse_secrets(url: str) -> None:
    """Refuse a URL that a file is not for, without a word of it."""
    if re.match(r"([^/?#]*//)?[^/?#]*@", url):
        message = "--from: the URL contains a user name or password, which would be recorded."
        hint = "try: --from without user name and password"
        raise CommandError(message, code=ExitCode.USAGE, hint=hint)


def _require_document(url: str, answer: RecordedAnswer) -> None:
    """Refuse to record what is no endpoint of scheduled events."""
    hint = "try: --from with the part of the URL before /metadata"
    if answer.no_answer:
        message = f"{url} cannot be recorded: {answer.no_answer}."
        raise CommandError(message, code=ExitCode.UNREACHABLE, hint=hint)
    if answer.status != 200:
        text = " ".join(answer.body[:200].decode(errors="replace").split())
        raise CommandError(
            f"{url} answers {answer.status}: {text}", code=ExitCode.FAILED, hint=hint
        )
    if flaw := _find_flaw(answer.body):
        message = f"{url} did not return a Scheduled Events document: {flaw}"
        raise CommandError(message, code=ExitCode.FAILED, hint=hint)


def _find_flaw(body: bytes) -> str:
    try:
        return "" if decode_document(body) else "It is empty."
    except MalformedDocumentError as error:
        return str(error)


def _explain(error: TransportError) -> str:
    if isinstance(error, LateReplyError):
        return "it did not answer in time"
    if isinstance(error, LargeReplyError):
        return f"its answer is larger than {_LARGEST // 2**20} MiB"
    return re.sub(r"^\[Errno -?\d+\] ", "", str(error))


def _describe(answer: RecordedAnswer) -> str:
    if answer.no_answer:
        return f"no answer: {answer.no_answer}"
    document = None if _find_flaw(answer.body) else decode_document(answer.body)
    if document is None:
        return f"{answer.status}, {len(answer.body)} bytes"
    shown = [f"{event.event_type} {event.event_status}" for event in document.events]
    return f"{answer.status}, incarnation {document.document_incarnation}: " + (
        ", ".join(shown) or "no events"
    )
