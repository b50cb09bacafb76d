"""Scheduled events for tests: a real metadata endpoint in this process, in virtual time.

    from forewarn.testing import Emulator

    with Emulator() as emulator:
        web = emulator.vm("web-0")
        event = web.reboot()
        run_my_code(metadata=web.url)
        emulator.await_started(event)
        emulator.clock.advance(minutes=10)
        assert event.event_status == "Completed"

With pytest and `pip install 'forewarn[pytest]'`, the fixture `scheduled_events` is an emulator.
"""

from forewarn.domain.event import Outcome
from forewarn.domain.notice import NoticeMode
from forewarn.ports.faults import FaultKind
from forewarn.protocol.vocabulary import EventSource, EventStatus, EventType
from forewarn.testing.emulator import Emulator, WouldBlockError, read_any_fleet
from forewarn.testing.engine import EmulatorClosedError, ServerMissingError
from forewarn.testing.handles import (
    EmulatedApproval,
    EmulatedClock,
    EmulatedEvent,
    EmulatedScenario,
    EmulatedVm,
)

__all__ = [
    "EmulatedApproval",
    "EmulatedClock",
    "EmulatedEvent",
    "EmulatedScenario",
    "EmulatedVm",
    "Emulator",
    "EmulatorClosedError",
    "EventSource",
    "EventStatus",
    "EventType",
    "FaultKind",
    "NoticeMode",
    "Outcome",
    "ServerMissingError",
    "WouldBlockError",
    "read_any_fleet",
]
