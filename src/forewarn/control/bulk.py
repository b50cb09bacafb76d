"""A large body, read and worked on beside an event loop that has others to answer.

Rules of this file: nothing holds the interpreter for long. A call into C does until it returns, so
none is given the whole body, except the parser, which calls back into Python for every object.
"""

import asyncio
import gc
import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum
from threading import Lock
from typing import Any, Final, TypeAlias

from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError

from forewarn.control.bodies import measure
from forewarn.desk.schemas import FleetRequest

_LARGE: Final = 1024 * 1024
_EVERY: Final = 2000
"""How many objects are read between two words about it, and let go in one go."""
_MOST: Final = 4_000_000
"""Forty for each of a hundred thousand virtual machines."""
_turn: Final = Lock()


class ImportStep(StrEnum):
    """How far a declaration is."""

    READING = "reading"
    CHECKING = "checking"
    WRITING = "writing"


Progress: TypeAlias = Callable[[ImportStep, int], None]
"""Told the step, and how many entries it has got to, or is about."""


@contextmanager
def calmly(size: int) -> Iterator[None]:
    """Have no garbage collected while something of *size* bytes is worked on, one at a time.

    It would look at every object again and again, with everybody waiting. What is made here has no
    cycles, so that it needs no collector; what stays is left out of all later looks. Of what was
    refused nothing stays, and its tracebacks may have cycles.
    """
    if size < _LARGE:
        yield
        return
    with _turn:
        gc.disable()
        try:
            yield
            gc.freeze()
        finally:
            gc.enable()


def read_declaration(body: Sequence[bytes], progress: Progress) -> FleetRequest:
    """Return what *body* declares, or refuse what is no declaration."""
    whole = b"".join(body)
    measure(whole, most_parts=_MOST, most_elements=_MOST)
    # Half a surrogate pair can only be written as an escape.
    has_surrogates = b"\\ud" in whole or b"\\uD" in whole
    seen = 0

    def look(entry: dict[str, Any]) -> dict[str, Any]:
        nonlocal seen
        seen += 1
        if seen % _EVERY == 0:
            progress(ImportStep.READING, seen)
        if has_surrogates:
            _check_text(entry)
        return entry

    try:
        content = json.loads(whole.decode("utf-8-sig"), object_hook=look)
    except (ValueError, RecursionError) as error:
        raise _refusal("json_invalid", f"JSON decode error: {error}") from error
    return _check(content)


def let_go(fleet: Mapping[str, Any]) -> None:
    """Empty the lists of *fleet*: all at once, it would take as long as many polls."""
    for entries in fleet.values():
        while entries and isinstance(entries, list):
            del entries[-_EVERY:]


async def follow(work: Callable[[Progress], bytes]) -> AsyncIterator[bytes]:
    """Yield a line for every progress of *work*, which runs on a thread, and one with its result.

    It goes on to its end also if nobody follows any more.
    """
    loop = asyncio.get_running_loop()
    lines: asyncio.Queue[bytes | None] = asyncio.Queue()

    def progress(step: ImportStep, entries: int) -> None:
        line = json.dumps({"step": step, "entries": entries}).encode()
        loop.call_soon_threadsafe(lines.put_nowait, line)

    def end(_: object) -> None:
        lines.put_nowait(None)

    working = loop.run_in_executor(None, work, progress)
    working.add_done_callback(end)
    while (line := await lines.get()) is not None:
        yield line + b"\n"
    try:
        result = await working
    finally:
        del working  # an error in it knows this frame by its traceback, with all that was read
    yield result + b"\n"


def _check(content: object) -> FleetRequest:
    # The fleet itself is checked entry by entry later.
    fleet = content.get("fleet") if isinstance(content, dict) else None
    if isinstance(content, dict) and isinstance(fleet, dict):
        content = {**content, "fleet": {}}
    try:
        order = FleetRequest.model_validate(content)
    except ValidationError as error:
        found = [{**each, "loc": ("body", *each["loc"])} for each in error.errors()]
        raise RequestValidationError(found) from error
    return order.model_copy(update={"fleet": fleet})


def _check_text(entry: dict[str, Any]) -> None:
    try:
        json.dumps(entry, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise _refusal("value_error", "the fleet contains text that is not valid Unicode") from None


def _refusal(kind: str, message: str) -> RequestValidationError:
    return RequestValidationError([{"type": kind, "loc": ("body",), "msg": message}])
