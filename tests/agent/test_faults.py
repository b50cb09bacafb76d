"""One agent lives through every fault of a real server: each hook once, each approval once."""

import json
import os
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any, Final

import pytest
from tests.e2e.conftest import wait_until

from forewarn.agent.loop import Stop, compose_agent, make_inbox, run_agent, watch
from forewarn.agent.performer import RealPerformer
from forewarn.agent.settings import read_settings, read_surroundings
from forewarn.agent.startup import find_identity, make_finder
from forewarn.agent.state import StateFile
from forewarn.agent.status import Status
from forewarn.client import Client
from forewarn.client import _retrying as retrying
from forewarn.client import _watching as watching
from forewarn.domain.fault import FAULTS, FaultKind
from forewarn.systemd import SystemdNotifier
from forewarn.testing import EmulatedEvent, EmulatedVm, Emulator

SECONDS: Final = 45
SOON: Final = 0.3
"""The time-out of clients, so that a slow server costs little."""
WHOLE_LIFE: Final = ["scheduled", "started", "recovered"]
PARAMETERS: Final[Mapping[FaultKind, dict[str, Any]]] = {
    FaultKind.SLOW: {"seconds": 2 * SOON, "times": 1},
    FaultKind.DRIP: {"seconds": 2 * SOON, "times": 1},
    FaultKind.LONG_LENGTH: {"times": 1},
    FaultKind.STATUS: {"status": 503, "times": 2},
    FaultKind.PUBLISH_DELAY: {"seconds": 30},
    FaultKind.INCARNATION_RESET: {},
    FaultKind.INCARNATION_JUMP: {},
    FaultKind.NOT_BEFORE_SLIP: {"seconds": 600, "times": 2},
    FaultKind.SHORT_NOTICE: {"seconds": 3600, "times": 2},
    # In one document only: more of them, and the event has vanished indeed.
    FaultKind.VANISH: {"times": 1},
}
"""Where it is not just three times: some polls may come before the event is there."""


def given(kind: FaultKind) -> dict[str, Any]:
    return PARAMETERS.get(kind, {"times": 3})


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A virtual machine with an agent, and what its hooks have written down."""

    emulator: Emulator
    vm: EmulatedVm
    journal: Path

    def hooks_of(self, event: EmulatedEvent) -> list[str]:
        """Return the phases whose hooks have run for *event*, in that order."""
        lines = self.journal.read_text(encoding="utf-8").splitlines()
        return [phase for phase, key in map(str.split, lines) if key == event.event_id]

    def wait_for(self, event: EmulatedEvent, phase: str) -> None:
        wait_until(lambda: phase in self.hooks_of(event), f"no hook of {phase}: {event}", SECONDS)

    def set_fault(self, *kinds: FaultKind) -> None:
        for kind in kinds:
            self.vm.fault(kind, **given(kind))

    def assert_met(self, *kinds: FaultKind) -> None:
        """Fail if one of *kinds* that count has not been met."""
        faults = self.vm._engine.replica.faults.all().get(self.vm.name, ())  # noqa: SLF001
        left = {fault.kind: fault.times for fault in faults if fault.times is not None}
        assert all(left.get(kind, 0) < given(kind).get("times", 1) for kind in kinds), left

    def live(self, *kinds: FaultKind) -> EmulatedEvent:
        """Go through the life of an event, with faults at every step of it, and return it."""
        self.set_fault(*kinds)
        event = self.vm.reboot()
        self.emulator.clock.advance(minutes=1)
        wait_until(lambda: event.event_status == "Started", f"not approved: {event}", SECONDS)
        self.assert_met(*kinds)
        self.set_fault(*kinds)
        self.emulator.clock.advance(minutes=1)
        self.wait_for(event, "started")
        self.set_fault(*kinds)
        self.emulator.clock.advance(minutes=10)
        event.assert_status("Completed")
        self.wait_for(event, "recovered")
        return event


@contextmanager
def running_agent(folder: Path, vm: EmulatedVm, journal: Path) -> Iterator[None]:
    """Run an agent as the service does, in threads, with hooks that are processes."""
    note = f'echo "$EVENT_PHASE $EVENT_ID" >> {journal}'
    hooks = [f"{phase} = {json.dumps(note)}" for phase in (*WHOLE_LIFE, "canceled", "notify")]
    file = folder / "agent.toml"
    lines = [f'state_dir = "{folder}/state"', 'approval = "when-ready"', 'ask_again = "1s"']
    file.write_text("\n".join([*lines, "[hooks]", *hooks]), encoding="utf-8")
    surroundings = read_surroundings({"PATH": os.defpath})
    settings, inbox, status = read_settings(file, surroundings), make_inbox(), Status()
    with StateFile(settings.state_dir) as state, Client(vm.url, timeout=SOON) as client:
        me = find_identity(settings, client, state)
        connect = partial(Client, vm.url, timeout=SOON)
        performer = RealPerformer(connect, surroundings.variables, inbox.put)
        finder = make_finder(settings, state)
        agent = compose_agent(settings, me, state.load(), state, performer, finder)
        watcher = Thread(target=watch, args=(client, lambda: agent.events, inbox, status))
        notifier = SystemdNotifier(None, None)
        runner = Thread(target=run_agent, args=(agent, inbox, status, notifier))
        for thread in (watcher, runner):
            thread.start()
        yield
        assert watcher.is_alive()
        assert runner.is_alive()
        client.close()
        inbox.put(Stop())
        for thread in (watcher, runner):
            thread.join(SECONDS)


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Generator[Machine]:
    """Let one agent run for all tests, with every pause a blink."""
    folder = tmp_path_factory.mktemp("agent")
    journal = folder / "journal"
    journal.touch()
    with pytest.MonkeyPatch.context() as patch, Emulator() as emulator:
        patch.setattr(retrying, "BACK_OFF", (0.01,))
        patch.setattr(watching, "POLL_SECONDS", 0.02)
        patch.setattr(watching, "_SHORT_WAIT", 0)
        patch.setattr(watching, "_ETAG_SECONDS", 0.5)
        vm = emulator.vm("web-0")
        with running_agent(folder, vm, journal):
            yield Machine(emulator=emulator, vm=vm, journal=journal)


def test_table_has_kinds_that_there_are() -> None:
    assert all(FAULTS[kind].needed <= given.keys() for kind, given in PARAMETERS.items())
    assert {kind for kind in FaultKind if FAULTS[kind].needed} <= PARAMETERS.keys()


@pytest.mark.parametrize("kind", FaultKind)
def test_agent_lives_through(machine: Machine, kind: FaultKind) -> None:
    event = machine.live(kind)
    machine.vm.clear_faults()

    hooks = machine.hooks_of(event)
    assert [phase for phase in hooks if phase != "notify"] == WHOLE_LIFE
    # It may be stopped before it has written anything: the type is known by now.
    assert hooks.count("notify") <= (kind is FaultKind.UNKNOWN_TYPE)
    assert [approval.by for approval in event.approvals] == ["web-0"]


def test_agent_lives_through_all_of_it_at_once(machine: Machine) -> None:
    event = machine.live(*FaultKind)
    machine.vm.clear_faults()

    hooks = machine.hooks_of(event)
    assert [phase for phase in hooks if phase != "notify"] == WHOLE_LIFE
    assert [approval.by for approval in event.approvals] == ["web-0"]


def test_event_that_vanishes_for_longer_is_put_back_from_and_prepared_for_anew(
    machine: Machine,
) -> None:
    event = machine.vm.reboot()
    wait_until(lambda: event.event_status == "Started", f"not approved: {event}", SECONDS)
    machine.wait_for(event, "started")

    machine.vm.fault("vanish")
    machine.wait_for(event, "recovered")
    machine.vm.clear_faults("vanish")
    wait_until(lambda: machine.hooks_of(event).count("started") == 2, "not anew", SECONDS)
    event.complete()
    wait_until(lambda: machine.hooks_of(event).count("recovered") == 2, "not back", SECONDS)

    assert machine.hooks_of(event) == [*WHOLE_LIFE, "started", "recovered"]
