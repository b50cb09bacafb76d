"""Maintenance time, as operators let it pass."""

from datetime import datetime

from forewarn.desk.caller import Caller
from forewarn.desk.services import ClockError
from forewarn.operations.recording import record_audit
from forewarn.wording.moments import check_reachable, parse_span


def advance_clock(caller: Caller, duration: str) -> datetime:
    """Let virtual time pass, with everything that falls due, and return what time it is then."""
    clock = caller.services.clock
    if clock.kind != "virtual":
        raise ClockError
    span = parse_span(duration)
    check_reachable(clock.now(), span)
    caller.write(lambda tx, context: record_audit(tx, context, "clock advance", duration))
    return clock.advance(span)
