"""Recordings: what a metadata endpoint answered, byte for byte, and when.

They are TOML. Whatever is appended to one leaves it complete, so a recorder may end at any moment.
"""

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Final

from pydantic import AfterValidator, Field

from forewarn.files.tables import Headers, Some, Table, TablesFile, WrongKeyError, read_tables
from forewarn.files.toml import encode_keys, encode_table

HEADERS: Final = ("Content-Type", "ETag", "Retry-After", "Location")
"""The headers that are recorded: a client may act on them."""

STATUSES: Final = range(200, 600)
"""What a status can be: those below are of no final answer."""
BODILESS: Final = frozenset({204, 304})
"""The statuses of answers that end with their headers: a body would be taken for the next one."""

_VERSION: Final = 1
_LONGEST: Final = 366 * 86_400
_OF_THE_SERVER: Final = frozenset({"connection", "content-length", "transfer-encoding"})
"""The headers that whoever replays a recording has to write itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedAnswer:
    """What polls were answered from *at* seconds on; nothing if *no_answer* says why."""

    at: float
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    no_answer: str = ""

    def is_like(self, other: "RecordedAnswer | None") -> bool:
        """Tell whether a client could not tell it from *other*."""
        return other is not None and replace(other, at=self.at) == self

    def find_header(self, name: str) -> str | None:
        """Return the value of a header; *name* is in small letters."""
        return {each.lower(): value for each, value in self.headers.items()}.get(name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """What was answered, the first answer first; *source* is where, if that may be known."""

    api_version: str
    began_at: str
    source: str = ""
    answers: tuple[RecordedAnswer, ...] = ()


class AnswerTable(Table):
    """One answer; which keys go together is checked later."""

    at: float = Field(ge=0, le=_LONGEST)
    status: int | None = Field(default=None, ge=STATUSES.start, le=STATUSES[-1], strict=True)
    headers: Headers = Field(default_factory=dict)
    body: str = ""
    body_base64: str = ""
    no_answer: str = ""


def _check_version(version: int) -> int:
    if version != _VERSION:
        raise ValueError(
            f"the format version is {version}, but this release reads version {_VERSION}"
        )
    return version


class RecordingTable(Table):
    """All of the file; *recording* is the version of the format."""

    recording: Annotated[int, AfterValidator(_check_version)]
    api_version: str = ""
    began_at: str = ""
    source: str = ""
    answer: Annotated[tuple[AnswerTable, ...], Some]


def read_recording(path: Path) -> Recording:
    """Return the recording in the file at *path*, or refuse it with the lines that are wrong."""
    file = read_tables(path, RecordingTable)
    return Recording(
        api_version=file.content.api_version,
        began_at=file.content.began_at,
        source=file.content.source,
        answers=_read_answers(file),
    )


def write_beginning(recording: Recording) -> str:
    """Return how the file of *recording* begins, before its answers."""
    known = {
        "recording": _VERSION,
        "source": recording.source,
        "api_version": recording.api_version,
        "began_at": recording.began_at,
    }
    return encode_keys({key: value for key, value in known.items() if value})


def write_answer(answer: RecordedAnswer) -> str:
    """Return what *answer* adds to the file of its recording."""
    if answer.no_answer:
        said: dict[str, object] = {"no_answer": answer.no_answer}
    else:
        said = {"status": answer.status, "headers": dict(answer.headers), **_write_body(answer)}
    entry = {"at": round(answer.at, 3), **said}
    return "\n" + encode_table(
        "answer", {key: value for key, value in entry.items() if value != {}}
    )


def _write_body(answer: RecordedAnswer) -> Mapping[str, str]:
    try:
        return {"body": answer.body.decode("utf-8")}
    except UnicodeDecodeError:
        return {"body_base64": base64.b64encode(answer.body).decode("ascii")}


def _read_answers(file: TablesFile[RecordingTable]) -> tuple[RecordedAnswer, ...]:
    last = 0.0

    def make(table: AnswerTable) -> RecordedAnswer:
        nonlocal last
        before, last = last, max(table.at, last)
        if table.at < before:
            raise WrongKeyError("at", "it is earlier than that of the previous answer")
        return _read_silence(table) if table.no_answer else _read_answer(table)

    return file.build("answer", file.content.answer, make)


def _read_silence(table: AnswerTable) -> RecordedAnswer:
    for key in ("status", "headers", "body", "body_base64"):
        if key in table.model_fields_set:
            raise WrongKeyError(key, "it cannot be used together with no_answer")
    return RecordedAnswer(at=table.at, no_answer=table.no_answer)


def _read_answer(table: AnswerTable) -> RecordedAnswer:
    if table.status is None:
        raise WrongKeyError("", "it needs a status or no_answer")
    if {"body", "body_base64"} <= table.model_fields_set:
        raise WrongKeyError("body_base64", "it cannot be used together with body")
    for key in ("body", "body_base64"):
        if table.status in BODILESS and getattr(table, key):
            raise WrongKeyError(key, f"{table.status} has no body")
    for name in table.headers:
        if name.lower() in _OF_THE_SERVER:
            raise WrongKeyError("headers", f"{name} cannot be recorded: the server sets it")
    return RecordedAnswer(
        at=table.at, status=table.status, headers=table.headers, body=_read_body(table)
    )


def _read_body(table: AnswerTable) -> bytes:
    try:
        encoded = base64.b64decode(table.body_base64, validate=True)
    except binascii.Error:
        raise WrongKeyError("body_base64", "it is not valid base64") from None
    return encoded or table.body.encode("utf-8")
