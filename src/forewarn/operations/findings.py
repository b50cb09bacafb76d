"""The findings: what is wrong with a server and its replicas, how bad it is, and what to do.

Commands, pages, metrics and alerts all show this list. A replica reports what only it knows, so
that any replica can answer for all of them.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from forewarn.domain.finding import Finding, FindingVerdict, doubtful, fine, wrong
from forewarn.domain.names import MaintenanceId
from forewarn.domain.notification import NotificationStatus
from forewarn.domain.phrases import count_of, say_moment, say_names
from forewarn.domain.snapshot import Snapshot
from forewarn.domain.standing import NEEDS_OPERATOR, MaintenanceState, MaintenanceStatus
from forewarn.domain.task import Task, TaskState, say_task
from forewarn.domain.walk import find_states
from forewarn.domain.windows import closes_at
from forewarn.operations.context import Context
from forewarn.operations.discovery import SourceStatus, find_sources
from forewarn.operations.incidents import Incident, read_incidents
from forewarn.operations.snapshots import look
from forewarn.ports.clock import ClockJump
from forewarn.ports.entries import Figures
from forewarn.ports.replicas import KnownReplica, RollCall
from forewarn.ports.store import Reading
from forewarn.wording.durations import format_duration

CHECKS: Final[Mapping[str, str]] = {
    "polls": "Virtual machines get answers to their polls.",
    "writes": "The database can be written.",
    "state directory": "The state directory can be written.",
    "scheduler lease": "",
    "replicas": "All replicas are present, up to date and alike.",
    "loops": "No part of the server has failed since it started.",
    "executors": "The executors can be used.",
    "database clock": "The clocks of the server and of its database agree.",
    "certificate": "No certificate of the server expires within 30 days.",
    "clock jumps": "The server's clock has not jumped within the last day.",
    "pause": "The server is not paused.",
    "discovery": "",
    "outbox": "Notifications are delivered.",
    "overdue events": "No event is overdue.",
    "maintenances": "No Maintenance is held or stuck.",
    "tasks": "",
    "windows": "",
}
"""What is checked, and the sentence when nothing is wrong; without one, the check is not shown."""

RECENT: Final = timedelta(days=1)
"""For how long an incident or a jump of the clock is a finding."""
EXPIRES_SOON: Final = timedelta(days=30)
"""A certificate that expires sooner should have been renewed."""
LAGGING: Final = timedelta(seconds=2)
"""A replica that is behind for longer has more to do than to keep up."""
SLOW_DELIVERY: Final = timedelta(minutes=5)
"""A notification that has waited for longer is not just under way."""

_PREVENTS_LEADING: Final = frozenset({"database clock", "state directory"})
_WORST_FIRST: Final = (FindingVerdict.FAIL, FindingVerdict.WARN, FindingVerdict.OK)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaState:
    """What only a replica itself knows: *failures* counts the failures of each loop since start.

    The loops in *failing* have failed and were not restarted yet.
    """

    is_answering: bool = True
    is_writable: bool = True
    is_following: bool = True
    failures: Mapping[str, int] = field(default_factory=dict)
    failing: tuple[str, ...] = ()
    records_problem: str = ""
    executor_problem: str = ""
    clock_offset: timedelta = timedelta(0)
    """How far its clock is ahead of the database's; zero if it is within the tolerance."""
    certificate: Path | None = None
    expires_at: datetime | None = None
    jumps: tuple[ClockJump, ...] = ()


def examine_replica(state: ReplicaState, now: datetime) -> Iterator[Finding]:
    """Yield what is wrong with a replica, as it reports it."""
    if not state.is_answering:
        sentence = "The server does not answer polls from virtual machines."
        yield wrong("polls", sentence, "see the server's log")
    if not state.is_writable:
        sentence = "The server cannot write its database; it answers polls from memory."
        yield wrong("writes", sentence, "see database_not_writable in the server's log")
    elif not state.is_following:
        sentence = "The server does not receive changes from other replicas."
        yield wrong("replicas", sentence, "see changes_not_followed in the server's log")
    if state.records_problem:
        sentence = f"{state.records_problem} This server does not lead, and begins no tasks."
        hint = "free space on the disk or repair it; the server then continues by itself"
        yield wrong("state directory", sentence, hint)
    if died := {name: number for name, number in state.failures.items() if number}:
        names = ", ".join(f"{name} ({number}x)" for name, number in died.items())
        hint = "see loop_failed in the server's log, and report the traceback as a bug"
        if state.failing:
            sentence = f"Parts of the server have failed and will be restarted: {names}."
            yield wrong("loops", sentence, hint)
        else:
            sentence = f"Parts of the server failed and were restarted: {names}."
            yield doubtful("loops", sentence, hint)
    if state.executor_problem:
        hint = "correct the file, then send the server SIGHUP or restart it"
        yield wrong("executors", f"This server begins no impact: {state.executor_problem}", hint)
    if state.clock_offset:
        way = "ahead of" if state.clock_offset > timedelta(0) else "behind"
        sentence = (
            f"The server's clock is {_say(abs(state.clock_offset))} {way} the clock of the "
            "database, so this server does not lead."
        )
        hint = "try: timedatectl status, on the server and on the machine of the database"
        yield wrong("database clock", sentence, hint)
    if state.expires_at is not None and state.expires_at - now < EXPIRES_SOON:
        has_expired = state.expires_at <= now
        verb, judge = ("expired", wrong) if has_expired else ("expires", doubtful)
        sentence = f"The certificate {state.certificate} {verb} at {say_moment(state.expires_at)}."
        hint = "renew it, then on the server: systemctl reload forewarn, or send SIGHUP"
        yield judge("certificate", sentence, hint)
    # While the clock is off, the jump is the same problem, and its time is that of the wrong clock.
    if state.jumps and not state.clock_offset and now - state.jumps[-1].at < RECENT:
        last = state.jumps[-1]
        way = "forward" if last.seconds > 0 else "back"
        span = _say(timedelta(seconds=abs(last.seconds)))
        sentence = f"The server's clock jumped {way} by {span} at {say_moment(last.at)}."
        yield doubtful("clock jumps", sentence, "try: timedatectl status, on the server")


def examine_server(
    reading: Reading, context: Context, roll: RollCall, figures: Figures, *, has_all_scopes: bool
) -> tuple[Mapping[MaintenanceId, MaintenanceState], tuple[Finding, ...]]:
    """Return the state of each Maintenance that has not ended, and all findings, worst first.

    Incidents and sources are only for those who can see all scopes.
    """
    snapshot = look(reading, context)
    states = find_states(snapshot, context.now)
    found = [
        *_find_reported(roll),
        _find_lease(roll),
        *_find_differences(roll),
        *_find_pause(snapshot),
        *_find_sources(find_sources(reading) if has_all_scopes else ()),
        *_find_figures(figures, context.at),
        *_find_stops(states),
        *_find_incidents(read_incidents(reading) if has_all_scopes else (), context.at),
        *_find_overruns(snapshot, context.now),
    ]
    seen = {each.check for each in found}
    if "database clock" in seen:
        seen.add("clock jumps")
    found += [fine(check, said) for check, said in CHECKS.items() if said and check not in seen]
    return states, tuple(sorted(found, key=lambda each: _WORST_FIRST.index(each.verdict)))


def _find_reported(roll: RollCall) -> Iterator[Finding]:
    for each in roll.present:
        named = "" if len(roll.replicas) == 1 else f"{_say_replica(each)}: "
        for finding in each.findings:
            yield replace(finding, sentence=f"{named}{finding.sentence}")


def _find_lease(roll: RollCall) -> Finding:
    check, is_alone = "scheduler lease", len(roll.replicas) == 1
    for each in roll.replicas:
        if each.is_leader:
            leader = "The server" if is_alone else _say_replica(each)
            return fine(check, f"{leader} holds the lease, epoch {roll.epoch}.")
    subject = "The server does not hold" if is_alone else "No replica holds"
    sentence = f"{subject} the lease, so no event is announced, started or completed automatically."
    reasons = [{one.check for one in each.findings} & _PREVENTS_LEADING for each in roll.present]
    hint = "try again in a few seconds; if it still fails, see lease_lost in the server's log"
    if reasons and all(reasons):
        named = say_names(sorted(set().union(*reasons)))
        hint = f"first correct these: {named}; a server then leads by itself"
    return wrong(check, sentence, hint)


def _find_differences(roll: RollCall) -> Iterator[Finding]:
    """Yield which replicas are away, behind, or have another version or setting than others."""
    check = "replicas"
    for each in roll.replicas:
        if each not in roll.present:
            ago = _say(roll.at - each.seen_at)
            hint = "try: systemctl status forewarn, on its machine; if that is gone for good: "
            hint += f"forewarn replica forget {each.identity.name}"
            yield doubtful(check, f"{_say_replica(each)} was last seen {ago} ago.", hint)
        elif each.lag > LAGGING:
            behind = f"{count_of(each.changes_behind, 'change')} and {_say(each.lag)}"
            hint = "check the load of its machine, and its connection to the database"
            yield doubtful(check, f"{_say_replica(each)} lags behind by {behind}.", hint)
    hint = "give all replicas the same version and settings"
    known = [{"version": each.identity.version, **each.identity.settings} for each in roll.present]
    for name in dict.fromkeys(name for each in known for name in each):
        values = sorted({each[name] or "not set" for each in known if name in each})
        if len(values) > 1:
            yield doubtful(check, f"The replicas differ in {name}: {', '.join(values)}.", hint)


def _find_pause(snapshot: Snapshot) -> Iterator[Finding]:
    if snapshot.server_pause is not None:
        sentence = "The server is paused: it serves polls, but starts nothing."
        yield doubtful("pause", sentence, "try: forewarn resume")


def _find_sources(sources: tuple[SourceStatus, ...]) -> Iterator[Finding]:
    failed = [each for each in sources if each.problem]
    for each in failed:
        sentence = f"The fleet does not follow {each.name}. {each.problem}"
        yield doubtful("discovery", sentence, "try: forewarn fleet sources")
    if sources and not failed:
        names = ", ".join(each.name for each in sources)
        yield fine("discovery", f"Sources that the fleet follows: {names}.")


def _find_figures(figures: Figures, at: datetime) -> Iterator[Finding]:
    waited = timedelta(0) if figures.waiting_since is None else at - figures.waiting_since
    waiting, failed = (
        figures.notifications.get(each, 0)
        for each in (NotificationStatus.WAITING, NotificationStatus.FAILED)
    )
    if waited > SLOW_DELIVERY:
        sentence = f"Messages waiting: {waiting}, the oldest for {_say(waited)}."
        yield doubtful("outbox", sentence, "try: forewarn notification list --waiting")
    if failed:
        sentence = f"Failed messages: {failed}."
        yield doubtful("outbox", sentence, "try: forewarn notification list --failed")
    if figures.events_overdue:
        sentence = f"Events that take longer than announced: {figures.events_overdue}."
        yield doubtful("overdue events", sentence, "try: forewarn event list --status Started")


def _find_stops(states: Mapping[MaintenanceId, MaintenanceState]) -> Iterator[Finding]:
    for key, state in states.items():
        sentence = f"Maintenance {key} is {state.text}."
        hint = f"try: forewarn maintenance explain {key}"
        if state.status in NEEDS_OPERATOR:
            yield wrong("maintenances", sentence, hint)
        elif state.status is MaintenanceStatus.AWAY:
            yield doubtful("maintenances", sentence, hint)


def _find_incidents(incidents: Sequence[Incident], at: datetime) -> Iterator[Finding]:
    for each in incidents:
        if at - each.at < RECENT:
            judge = wrong if each.hint else doubtful
            yield judge("tasks", f"{say_moment(each.at)}: {each.sentence}", each.hint)


def _find_overruns(snapshot: Snapshot, now: datetime) -> Iterator[Finding]:
    """Yield each Maintenance with tasks that are not over although its calendar is closed."""
    late: dict[MaintenanceId, list[Task]] = {}
    for task in snapshot.rows.values():
        maintenance_id = snapshot.maintenance_of(task)
        if maintenance_id and task.state in {TaskState.BEGUN, TaskState.UNKNOWN}:
            late.setdefault(maintenance_id, []).append(task)
    for key, tasks in late.items():
        maintenance = snapshot.maintenances.get(key)
        if maintenance and closes_at(maintenance.course.calendar, now) == now:
            those = say_names([say_task(task) for task in tasks])
            number = count_of(len(tasks), "task")
            sentence = f"Maintenance {key} has {number} past its window: {those}."
            yield doubtful("windows", sentence, "wait until they end, or end them where they run")


def _say_replica(known: KnownReplica) -> str:
    return f"Replica {known.identity.name} at {known.identity.address}"


def _say(span: timedelta) -> str:
    return format_duration(timedelta(seconds=max(round(span.total_seconds()), 0)))
