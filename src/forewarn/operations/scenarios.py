"""Running scenarios, and where each run is."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from forewarn.domain.errors import NotFoundError, says
from forewarn.domain.event import Happening, ScheduledEvent, cancel
from forewarn.domain.limits import FASTEST
from forewarn.domain.names import ScenarioRunId
from forewarn.domain.scenario import Scenario, ScenarioRun, stop
from forewarn.files.scenario import ScenarioError
from forewarn.operations.context import Context, SharedDatabaseError
from forewarn.operations.inventory import find_vms
from forewarn.operations.recording import Deed, record_audit, record_events
from forewarn.ports.entries import LedgerEntry
from forewarn.ports.store import Reading, Transaction
from forewarn.protocol.vocabulary import EventStatus


@says("Unknown scenario {scenario!r}.")
class UnknownScenarioError(NotFoundError):
    """A scenario that is not built in."""

    scenario: str


@says("Unknown scenario run {run_id!r}.")
class UnknownScenarioRunError(NotFoundError):
    """A run nobody has started."""

    run_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioReport:
    """Where a run is: its events so far, and all that has happened to them, oldest first."""

    run: ScenarioRun
    events: tuple[ScheduledEvent, ...]
    log: tuple[LedgerEntry, ...]


def find_scenario(scenarios: Mapping[str, Scenario], name: str) -> Scenario:
    """Return the scenario called *name*, or refuse."""
    try:
        return scenarios[name]
    except KeyError:
        raise UnknownScenarioError(name) from None


def start_scenario(
    tx: Transaction, context: Context, scenario: Scenario, vms: Iterable[str], speed: float = 1
) -> ScenarioRun:
    """Begin *scenario* now; its steps are done when they are due, *speed* times as fast.

    The speed of the server is in it too, so that all of the timeline keeps its proportions.
    """
    if context.rules.is_shared:
        raise SharedDatabaseError("Scenarios")
    resources = tuple(dict.fromkeys(vm.name for vm in find_vms(tx.topology(), vms)))
    if not resources:
        raise ScenarioError("A scenario needs at least one virtual machine.")
    if not 1 <= speed <= FASTEST:
        raise ScenarioError(f"The speed of a scenario must be from 1 to {FASTEST}.")
    run = ScenarioRun(
        run_id=ScenarioRunId(context.new_id().lower()),
        name=scenario.name,
        resources=resources,
        began_at=context.now,
        speed=speed * context.rules.speed,
        steps=scenario.steps,
    )
    tx.put_scenario_run(run)
    record_audit(tx, context, "scenario run", run.run_id)
    return run


def stop_scenario(tx: Transaction, context: Context, run_id: str) -> ScenarioRun:
    """Do no more steps, and cancel what is Scheduled; what has Started goes on to its end."""
    run = stop(_find_run(tx, run_id))
    canceled = [
        cancel(event, reason="the scenario was stopped", now=context.now)
        for event in _events(tx, run)
        if event.event_status is EventStatus.SCHEDULED
    ]
    record_events(tx, context, [Deed(event=event, what=Happening.CANCELED) for event in canceled])
    tx.put_scenario_run(run)
    record_audit(tx, context, "scenario stop", run.run_id)
    return run


def report_scenario_run(reading: Reading, run_id: str) -> ScenarioReport:
    """Say where a run is and what has happened in it."""
    run = _find_run(reading, run_id)
    entries = [entry for event_id in run.event_ids for entry in reading.ledger(event_id)]
    return ScenarioReport(
        run=run,
        events=_events(reading, run),
        log=tuple(sorted(entries, key=lambda entry: entry.at)),
    )


def find_scenario_runs(
    reading: Reading, *, older_than: str | None, limit: int
) -> tuple[ScenarioRun, ...]:
    """Return the newest runs, or the newest before one that was seen, oldest first."""
    seen = None if older_than is None else _find_run(reading, older_than).run_id
    return reading.scenario_runs(older_than=seen, limit=limit)


def _find_run(reading: Reading, run_id: str) -> ScenarioRun:
    run = reading.scenario_run(ScenarioRunId(run_id))
    if run is None:
        raise UnknownScenarioRunError(run_id)
    return run


def _events(reading: Reading, run: ScenarioRun) -> tuple[ScheduledEvent, ...]:
    found = map(reading.event, run.event_ids)
    return tuple(event for event in found if event is not None)
