"""The emulator: scheduled events on demand, for code under test here or in another process."""

import threading
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Self, Unpack

from forewarn.clocks import SystemClock
from forewarn.domain.notice import NoticeMode
from forewarn.domain.scenario import Scenario
from forewarn.emulator.builtin import built_in_scenarios
from forewarn.files.fleet import Fleet, FleetError, read_fleet, read_fleet_file, standalone_vms
from forewarn.files.scenario import ScenarioError, read_scenario
from forewarn.operations.inventory import apply_fleet
from forewarn.operations.scenarios import start_scenario
from forewarn.ports.journal import JournalEntry
from forewarn.protocol.versions import NEWEST
from forewarn.protocol.vocabulary import EventType
from forewarn.settings_table import ExecutorKind
from forewarn.testing.engine import (
    LOCALHOST,
    EmulatorClosedError,
    Engine,
    UnknownNameError,
    in_one_frame,
    start_engine,
)
from forewarn.testing.events import (
    Details,
    EmulatedApproval,
    EmulatedEvent,
    all_approvals,
    all_events,
    announce,
    choose,
)
from forewarn.testing.handles import EmulatedClock, EmulatedScenario, EmulatedVm
from forewarn.testing.reports import describe_everything, request_lines
from forewarn.testing.waits import TIMEOUT, Until, block

__tracebackhide__ = True


class Emulator:
    """A metadata endpoint with every virtual machine you need, in virtual time.

    Without a *fleet*, a virtual machine is there as soon as it is asked for, on its own. A fleet is
    the text of a fleet file, the path of one, or the same as a mapping. Whoever calls without
    saying who, at `address`, is *default_vm*.
    """

    def __init__(
        self,
        fleet: str | Path | Mapping[str, Any] | Fleet | None = None,
        *,
        default_vm: str | None = None,
        now: datetime | None = None,
        notice: NoticeMode | str = NoticeMode.ALWAYS,
        executor: ExecutorKind | str = ExecutorKind.SIMULATED,
    ) -> None:
        self._fleet = read_any_fleet(fleet)
        if self._fleet is None and default_vm is not None:
            self._fleet = _alone(default_vm)
        self._makes_vms = fleet is None
        self._settings = {"default_vm": default_vm, "notice": notice, "executor": executor}
        if now is not None and now.tzinfo is None:
            raise ValueError("now needs a time zone: datetime(2030, 1, 5, 8, tzinfo=UTC).")
        self._now = now
        self._engine: Engine | None = None
        self._starting = threading.Lock()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @in_one_frame
    def start(self, listen: tuple[str, int] = (LOCALHOST, 0)) -> None:
        """Begin to serve at *listen*, a host and a port; `with` does it for you."""
        with self._starting:
            if self._engine is None:
                now = self._now or SystemClock().now()
                self._engine = start_engine(self._settings, self._fleet, now, listen=listen)

    def close(self) -> None:
        """Stop serving and leave nothing behind. Doing it twice does no harm."""
        with self._starting:
            engine, self._engine = self._engine, None
        if engine is not None:
            engine.close()

    @property
    def is_running(self) -> bool:
        """Tell whether it serves."""
        return self._engine is not None

    @property
    def address(self) -> str:
        """HOST:PORT of the metadata endpoint."""
        return self._running.address

    @property
    def control_url(self) -> str:
        """The control API, for `forewarn --server`; it is started when first asked for.

        It needs more than the fixture: `pip install 'forewarn[server]'`.
        """
        return f"http://{LOCALHOST}:{self._running.control_port()}"

    @property
    def token(self) -> str:
        """The token for `control_url`."""
        return self._running.replica.token

    @property
    def clock(self) -> EmulatedClock:
        """Maintenance time, which stands still until it is advanced."""
        return EmulatedClock(self._running)

    def vm(self, name: str) -> EmulatedVm:
        """Return the virtual machine called *name*."""
        engine = self._running
        if self._makes_vms and engine.replica.board.vm_named(name) is None:
            engine.write(lambda tx, context: apply_fleet(tx, context, _alone(name)))
        return EmulatedVm(engine, engine.find_vm(name).name)

    @property
    def vms(self) -> tuple[EmulatedVm, ...]:
        """Every virtual machine there is, in the order of the fleet."""
        names = self._running.read(lambda reading: tuple(reading.topology().virtual_machines))
        return tuple(EmulatedVm(self._running, name) for name in names)

    @property
    def events(self) -> tuple[EmulatedEvent, ...]:
        """Every event there is or was, oldest first."""
        return all_events(self._running)

    @property
    def approvals(self) -> tuple[EmulatedApproval, ...]:
        """Who has approved what, in the order of time."""
        return all_approvals(self._running)

    @property
    def requests(self) -> tuple[JournalEntry, ...]:
        """The last requests of every virtual machine and of unknown callers, oldest first."""
        return self._running.replica.journal.requests()

    def announce(
        self, event_type: EventType | str, *vms: str, **details: Unpack[Details]
    ) -> tuple[EmulatedEvent, ...]:
        """Announce *event_type* for all of *vms*: an event for each update domain of each scope."""
        chosen = choose(EventType, event_type)
        return announce(self._running, chosen, [self.vm(name).name for name in vms], details)

    @in_one_frame
    def run_scenario(self, scenario: str | Path, *vms: str) -> EmulatedScenario:
        """Begin a built-in scenario, or the one in a file, which then happens to *vms*."""
        chosen = _read_scenario(scenario)
        names = [self.vm(name).name for name in vms]
        run = self._running.write(lambda tx, context: start_scenario(tx, context, chosen, names))
        return EmulatedScenario(self._running, run.run_id)

    def document(self, vm: str, api_version: str = NEWEST.name) -> dict[str, Any]:
        """Return what *vm* reads, as it is on the wire."""
        return self.vm(vm).document(api_version)

    @property
    def until(self) -> Until:
        """The waits, for coroutines: `await emulator.until.approved(event)`."""
        return Until()

    def await_polled(self, vm: EmulatedVm, timeout: float = TIMEOUT) -> None:
        """Wait up to *timeout* real seconds until *vm* has read its document."""
        block("polled", lambda until: until.polled(vm, timeout))

    def await_seen(
        self, event: EmulatedEvent, timeout: float = TIMEOUT, *, by: EmulatedVm | None = None
    ) -> None:
        """Wait until *by*, or a machine that *event* happens to, has read of it."""
        block("seen", lambda until: until.seen(event, timeout, by=by))

    def await_approved(self, event: EmulatedEvent, timeout: float = TIMEOUT) -> None:
        """Wait up to *timeout* real seconds until somebody has approved *event*."""
        block("approved", lambda until: until.approved(event, timeout))

    def await_started(self, event: EmulatedEvent, timeout: float = TIMEOUT) -> None:
        """Wait up to *timeout* real seconds until *event* has started."""
        block("started", lambda until: until.started(event, timeout))

    def describe(self) -> str:
        """Return every document, ledger and request, for the message of a failed test."""
        now = self.clock.now
        known = self._running.read(lambda reading: describe_everything(reading, now))
        return "\n".join((known, *request_lines(self.requests)))

    def __repr__(self) -> str:
        return f"<emulator {f'at {self.address}' if self.is_running else 'that is not running'}>"

    @property
    def _running(self) -> Engine:
        if self._engine is None:
            raise EmulatorClosedError
        return self._engine


@in_one_frame
def read_any_fleet(fleet: str | Path | Mapping[str, Any] | Fleet | None) -> Fleet | None:
    """Return the fleet, in whatever form it was given."""
    match fleet:
        case None | Fleet():
            return fleet
        case Path():
            return read_fleet_file(fleet.read_text(encoding="utf-8"))
        case str() if _looks_like_a_path(fleet):
            raise FleetError(f"fleet must be a path or a table, not a string; use Path({fleet!r}).")
        case str():
            return read_fleet_file(fleet)
        case _:
            return read_fleet(fleet)


def _looks_like_a_path(text: str) -> bool:
    return text.endswith(".toml") and "\n" not in text


def _read_scenario(scenario: str | Path) -> Scenario:
    if isinstance(scenario, Path):
        try:
            return read_scenario(scenario.read_text(encoding="utf-8"))
        except ScenarioError as error:
            raise ScenarioError(f"{scenario}:{error.line}: {error}", error.line) from error
    if _looks_like_a_path(scenario):
        raise ScenarioError(
            f"{scenario!r} is not a built-in scenario; for a file, use Path({scenario!r})."
        )
    built_in = built_in_scenarios()
    if scenario not in built_in:
        raise UnknownNameError("scenario", scenario, tuple(built_in))
    return built_in[scenario]


def _alone(name: str) -> Fleet:
    return read_fleet(standalone_vms(name))
