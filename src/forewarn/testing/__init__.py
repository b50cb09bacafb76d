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
from forewarn.domain.fault import FaultKind
from forewarn.domain.notice import NoticeMode
from forewarn.ports.journal import JournalEntry
from forewarn.protocol.vocabulary import EventSource, EventStatus, EventType

try:
    from forewarn.testing.emulator import Emulator, read_any_fleet
    from forewarn.testing.engine import EmulatorClosedError, ServerMissingError, UnknownNameError
    from forewarn.testing.events import EmulatedApproval, EmulatedEvent
    from forewarn.testing.handles import EmulatedClock, EmulatedScenario, EmulatedVm
    from forewarn.testing.waits import Until, WouldBlockError
except ModuleNotFoundError as error:
    if error.name is None or error.name.startswith("forewarn"):
        raise
    raise ModuleNotFoundError(
        f"forewarn.testing needs {error.name}; run: pip install 'forewarn[pytest]'", name=error.name
    ) from None

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
    "JournalEntry",
    "NoticeMode",
    "Outcome",
    "ServerMissingError",
    "UnknownNameError",
    "Until",
    "WouldBlockError",
    "read_any_fleet",
]
