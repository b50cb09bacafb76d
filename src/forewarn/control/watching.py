"""/events/watch: the ledger as server-sent events, to be resumed from any place in it."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Annotated, Any, Final

from fastapi import APIRouter, Header, Query, Request
from pydantic import AfterValidator
from starlette.responses import StreamingResponse

from forewarn.connections.streams import LimitedStream
from forewarn.control.bodies import BodyRoute
from forewarn.control.caller import Viewing
from forewarn.desk.caller import Caller
from forewarn.desk.ledger_watch import Growth
from forewarn.desk.schemas import View
from forewarn.desk.shapes import mirrors
from forewarn.domain.errors import UnknownVirtualMachineError
from forewarn.domain.names import name_key
from forewarn.operations.events import find_event
from forewarn.ports.entries import LedgerLine
from forewarn.ports.store import Reading
from forewarn.protocol import vocabulary
from forewarn.protocol.errors import ForewarnError
from forewarn.protocol.vocabulary import EventId

router = APIRouter(prefix="/events", tags=["events"], route_class=BodyRoute)

_LARGEST: Final = 2**63 - 1
_RETRY: Final = b"retry: 1000\n"
_STREAM: Final[dict[int | str, dict[str, Any]]] = {
    200: {
        "description": "Server-sent events; the data of each is a LedgerLineView.",
        "content": {"text/event-stream": {"schema": {"type": "string"}}},
    }
}

Place = Annotated[
    int | None, Query(ge=0, le=_LARGEST, description="Number of the last line received.")
]
LastEventId = Annotated[
    int | None,
    Header(ge=0, le=_LARGEST, description="Like after; takes precedence if both are given."),
]
OneEvent = Annotated[
    EventId | None, AfterValidator(lambda text: text and vocabulary.event_id(text)), Query()
]


@mirrors(LedgerLine, "sequence event_id event_type scope_id resources at what who where detail")
class LedgerLineView(View):
    """One change of an event."""

    what: str


@router.get("/watch", response_class=StreamingResponse, responses=_STREAM)
def watch_events(
    caller: Viewing,
    request: Request,
    *,
    vm: Annotated[str | None, Query()] = None,
    event_id: OneEvent = None,
    after: Place = None,
    last_event_id: LastEventId = None,
) -> StreamingResponse:
    """Stream changes of events: from now on, or after a given line."""
    wanted = last_event_id if last_event_id is not None else after

    def look(reading: Reading) -> int:
        if event_id is not None:
            find_event(reading, event_id)
        # Who has left the fleet has a past to be read.
        if vm is not None and not reading.memberships(vm):
            raise UnknownVirtualMachineError(vm)
        last = reading.last_sequence()
        # A place beyond the end is that of a database that was since replaced by an older one.
        return last if wanted is None else min(wanted, last)

    begin = caller.read(look)
    return LimitedStream(
        _write(_growth(caller, begin, request.state.identify), _filter(vm, event_id)),
        media_type="text/event-stream",
        streams=caller.services.streams,
        token=caller.principal.name,
    )


def _filter(vm: str | None, event_id: EventId | None) -> Callable[[LedgerLine], bool]:
    key = None if vm is None else name_key(vm)

    def is_wanted(line: LedgerLine) -> bool:
        return (event_id is None or line.event_id == event_id) and (
            key is None or any(name_key(name) == key for name in line.resources)
        )

    return is_wanted


async def _growth(
    caller: Caller, after: int, identify: Callable[[], Awaitable[object]]
) -> AsyncGenerator[Growth]:
    """Yield what the caller may see, and nothing from the moment on that the token has ended."""
    async for place, lines in caller.watch(after):
        try:
            await identify()
        except ForewarnError:
            return
        yield place, lines


async def _write(
    growth: AsyncGenerator[Growth], is_wanted: Callable[[LedgerLine], bool]
) -> AsyncGenerator[bytes]:
    yield _RETRY
    async for place, lines in growth:
        events = [_event(line) for line in lines if is_wanted(line)]
        # The place moves on also past what was not wanted; without data nothing is dispatched.
        yield b"".join(events) + b"id: %d\n\n" % place


def _event(line: LedgerLine) -> bytes:
    data = LedgerLineView.model_validate(line).model_dump_json()
    return b"id: %d\ndata: %s\n\n" % (line.sequence, data.encode())
