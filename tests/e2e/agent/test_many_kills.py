"""Kill -9 aimed at every phase: nothing is taken out twice, and all is put back in the end."""

import json
import random
import time
from collections import Counter
from collections.abc import Callable, Mapping
from itertools import cycle, islice

from tests.e2e.agent.conftest import MachineMaker
from tests.e2e.agent.machines import Machine
from tests.e2e.conftest import ANSWER_SECONDS, Server, ServerMaker, wait_until


class Run:
    """One event, and the agent that is killed because of it."""

    def __init__(self, server: Server, machine: Machine, chance: random.Random) -> None:
        self.server = server
        self.machine = machine
        self.chance = chance
        (event,) = server.create("Reboot", machine.name)
        self.event_id: str = event["event_id"]

    def wait_for(self, what: str) -> None:
        """Return when the hook has written *what*, like `begin started`."""
        line = f"{what} 10-note {self.event_id}"
        wait_until(
            lambda: line in self.machine.journal,
            f"there is no {line!r}: {self.machine.said()[-4000:]}",
            ANSWER_SECONDS,
        )

    def kill(self, longest: float) -> None:
        """Kill -9 the agent within *longest* seconds, every other time with its hooks."""
        time.sleep(self.chance.uniform(0, longest))
        self.chance.choice((self.machine.kill, self.machine.cut_power))()

    def kill_in(self, phase: str, lead_to: Callable[[], None] = lambda: None) -> None:
        """Kill the agent while the hook of *phase* runs."""
        self.machine.hold(phase)
        lead_to()
        self.wait_for(f"begin {phase}")
        self.kill(0.05)
        self.machine.release(phase)

    def complete(self) -> None:
        self.wait_for("end started")
        self.server.complete(self.event_id)

    def cancel(self) -> None:
        self.server.cancel(self.event_id)

    def finish(self) -> None:
        """Start the agent, and bring the event to its end, wherever it is."""
        self.machine.start()
        if self.chance.random() < 0.2:
            self.kill(0.1)
            self.machine.start()
        fate = self.chance.choice(("start", "cancel"))
        self.server.operate("POST", f"events/{self.event_id}/{fate}")  # it may be too late
        if self.server.event(self.event_id)["event_status"] == "Started":
            self.server.complete(self.event_id)
        wait_until(
            lambda: not find_cases(self.machine),
            f"{self.event_id} is not closed: {self.machine.said()[-4000:]}",
            ANSWER_SECONDS,
        )


def kill_after_the_announcement(run: Run) -> None:
    run.kill(0.3)


def kill_in_scheduled(run: Run) -> None:
    run.kill_in("scheduled")


def kill_during_the_approval(run: Run) -> None:
    run.wait_for("end scheduled")
    run.kill(0.1)


def kill_in_started(run: Run) -> None:
    run.kill_in("started")


def kill_after_the_end(run: Run) -> None:
    run.complete()
    run.kill(0.15)


def kill_in_recovered(run: Run) -> None:
    run.kill_in("recovered", run.complete)


def kill_in_canceled(run: Run) -> None:
    run.wait_for("begin scheduled")
    run.kill_in("canceled", run.cancel)
    run.machine.release("scheduled")


AIMS: Mapping[str, Callable[[Run], None]] = {
    "scheduled": kill_in_scheduled,
    "recovered": kill_in_recovered,
    "approval": kill_during_the_approval,
    "started": kill_in_started,
    "canceled": kill_in_canceled,
    "announcement": kill_after_the_announcement,
    "end": kill_after_the_end,
}
HOLDS = {"scheduled": "scheduled", "started": "started", "canceled": "scheduled"}
"""What has to be held before the event is announced, or its hook is over too soon."""


def find_cases(machine: Machine) -> list[object]:
    file = machine.folder / "state" / "state.json"
    cases: list[object] = json.loads(file.read_bytes())["cases"] if file.exists() else []
    return cases


def test_agent_that_is_killed_in_any_phase_takes_out_once_and_puts_back(
    start_server: ServerMaker, make_machine: MachineMaker, agent_kills: int
) -> None:
    chance = random.Random(20_261_116)  # noqa: S311 - dice, not secrets
    server = start_server()
    machine = make_machine(server)
    machine.start()

    for aim in islice(cycle(AIMS), agent_kills):
        if aim in HOLDS:
            machine.hold(HOLDS[aim])
        run = Run(server, machine, chance)
        AIMS[aim](run)
        run.finish()
        check(machine.journal, run.event_id)

    assert machine.said().count("agent_runs") > agent_kills


def check(journal: list[str], event_id: str) -> None:
    done = Counter(line.rpartition(" 10-note ")[0] for line in journal if line.endswith(event_id))
    assert done["begin scheduled"] <= 1, journal
    assert done["begin started"] <= 1, journal
    assert done["end recovered"] + done["end canceled"] >= 1 or not done, journal
