"""Findings: incidents of the last day, and tasks that run although their window has closed."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from tests.findings import LEADER, SEEN, find_all, find_problems
from tests.roll_out import RollOut

from forewarn.domain.finding import Finding, FindingVerdict
from forewarn.domain.notification import NotificationStatus
from forewarn.domain.windows import Calendar, read_window
from forewarn.operations.discovery import SourceStatus, put_sources
from forewarn.operations.findings import (
    CHECKS,
    ReplicaState,
    examine_replica,
)
from forewarn.operations.incidents import Incident, note_incident
from forewarn.operations.notifications import example_notification
from forewarn.operations.pausing import pause_server
from forewarn.ports.clock import ClockJump
from forewarn.ports.entries import Figures
from forewarn.ports.replicas import KnownReplica
from forewarn.storage.sqlite import open_sqlite

FLEET = '[[virtual_machine]]\nname = "web-0"\nhost = "kvm-1"\n'
CALENDAR = Calendar(windows=(read_window("Mon 08:00-09:00 UTC"),))


@pytest.fixture
def made(tmp_path: Path) -> Iterator[RollOut]:
    with closing(open_sqlite(tmp_path / "forewarn.db", is_durable=False)) as store:
        yield RollOut(store, FLEET)


def findings(made: RollOut, *, has_all_scopes: bool = True) -> list[Finding]:
    return find_problems(made.store, made.context(), has_all_scopes=has_all_scopes)


def test_task_that_runs_past_its_window_is_a_finding_until_it_ends(made: RollOut) -> None:
    made.start("kvm-1", calendar=CALENDAR)
    made.advance(minutes=16)
    (task,) = made.open()
    made.begin(task)
    made.advance(minutes=43)
    inside = findings(made)
    made.advance(minutes=2)
    (outside,) = findings(made)
    made.end(task)

    assert inside == []
    assert outside.verdict is FindingVerdict.WARN
    assert outside.sentence == (
        f"Maintenance {made.maintenance_id} has 1 task past its window: the impact on web-0."
    )
    assert findings(made) == []


def test_task_that_is_only_reserved_is_not_past_its_window(made: RollOut) -> None:
    made.start("kvm-1", calendar=CALENDAR)
    made.advance(minutes=16)
    made.advance(hours=2)

    assert len(made.open()) == 1
    assert findings(made) == []


def test_incident_is_a_finding_for_a_day_for_those_who_see_all_scopes(made: RollOut) -> None:
    incident = Incident(at=made.real, sentence="It burned.", hint="put it out")
    made.store.write(lambda tx: note_incident(tx, incident))

    (finding,) = findings(made)
    hidden = findings(made, has_all_scopes=False)
    made.pass_real_time(timedelta(days=1))

    assert finding.sentence == "2026-01-04 08:00:00 GMT: It burned."
    assert (finding.verdict, finding.hint) == (FindingVerdict.FAIL, "put it out")
    assert hidden == []
    assert findings(made) == []


def test_incident_without_a_hint_is_only_a_warning(made: RollOut) -> None:
    incident = Incident(at=made.real, sentence="It was done, as it was settled.", hint="")
    made.store.write(lambda tx: note_incident(tx, incident))

    (finding,) = findings(made)

    assert finding.verdict is FindingVerdict.WARN


def test_of_many_incidents_the_newest_are_kept(made: RollOut) -> None:
    for number in range(30):
        incident = Incident(at=made.real, sentence=f"Number {number}.", hint="")
        made.store.write(lambda tx, incident=incident: note_incident(tx, incident))  # type: ignore[misc]

    found = findings(made)

    assert len(found) == 20
    assert found[-1].sentence.endswith("Number 29.")


def test_what_waits_or_takes_too_long_is_a_finding(made: RollOut) -> None:
    context = made.context()
    figures = Figures(
        events_in_flight={},
        events_overdue=4,
        notifications={NotificationStatus.WAITING: 3, NotificationStatus.FAILED: 2},
        waiting_since=context.at - timedelta(minutes=6),
        epoch=7,
    )

    found = find_problems(made.store, context, figures=figures)

    assert [(each.check, each.sentence) for each in found] == [
        ("outbox", "Messages waiting: 3, the oldest for 6m."),
        ("outbox", "Failed messages: 2."),
        ("overdue events", "Events that take longer than announced: 4."),
    ]


def test_maintenance_that_waits_for_a_replica_is_a_warning_and_a_stuck_one_a_failure(
    made: RollOut,
) -> None:
    made.start("kvm-1")
    made.advance(minutes=16)
    (task,) = made.open()
    made.begin(task)
    made.alive.remove("a")
    made.lead("b")
    made.pass_real_time(timedelta(minutes=1))
    (away,) = findings(made)
    made.pass_real_time(timedelta(minutes=5))
    (stuck,) = findings(made)

    assert (away.check, away.verdict) == ("maintenances", FindingVerdict.WARN)
    assert (stuck.check, stuck.verdict) == ("maintenances", FindingVerdict.FAIL)
    assert "is stuck: the state of the impact on web-0 is unknown" in stuck.sentence


def replica(name: str, **more: object) -> KnownReplica:
    """Return a replica that does not lead."""
    address = f"http://{name}:8170"
    identity = replace(LEADER.identity, replica_id=name, name=name, address=address)
    return replace(LEADER, identity=identity, is_leader=False, **more)  # type: ignore[arg-type]


def test_server_that_is_well_has_one_finding_for_each_check(made: RollOut) -> None:
    found = find_all(made.store, made.context())

    assert {each.verdict for each in found} == {FindingVerdict.OK}
    assert {each.check for each in found} == CHECKS.keys() - {"discovery", "tasks", "windows"}
    assert "The server holds the lease, epoch 7." in {each.sentence for each in found}


@pytest.mark.parametrize(
    ("state", "check", "verdict", "said"),
    [
        (ReplicaState(is_answering=False), "polls", "fail", "does not answer polls"),
        (ReplicaState(is_writable=False), "writes", "fail", "cannot write its database"),
        (ReplicaState(is_following=False), "replicas", "fail", "does not receive changes"),
        (
            ReplicaState(failures={"polls": 0, "scheduler": 2}),
            "loops",
            "warn",
            "failed and were restarted: scheduler (2x).",
        ),
        (
            ReplicaState(failures={"scheduler": 2}, failing=("scheduler",)),
            "loops",
            "fail",
            "will be restarted: scheduler (2x).",
        ),
        (
            ReplicaState(executor_problem="no file"),
            "executors",
            "fail",
            "begins no impact: no file",
        ),
        (
            ReplicaState(clock_offset=timedelta(minutes=-20)),
            "database clock",
            "fail",
            "is 20m behind the clock of the database",
        ),
        (
            ReplicaState(records_problem="x cannot be written: No space left on device."),
            "state directory",
            "fail",
            "x cannot be written: No space left on device. This server does not lead",
        ),
        (
            ReplicaState(certificate=Path("a.pem"), expires_at=SEEN + timedelta(days=29)),
            "certificate",
            "warn",
            "The certificate a.pem expires at 2026-02-03 08:00:00 GMT.",
        ),
        (
            ReplicaState(certificate=Path("a.pem"), expires_at=SEEN),
            "certificate",
            "fail",
            "The certificate a.pem expired at 2026-01-05 08:00:00 GMT.",
        ),
        (
            ReplicaState(jumps=(ClockJump(at=SEEN - timedelta(hours=23), seconds=-90),)),
            "clock jumps",
            "warn",
            "jumped back by 1m30s at 2026-01-04 09:00:00 GMT.",
        ),
    ],
)
def test_replica_reports_what_only_it_knows(
    state: ReplicaState, check: str, verdict: str, said: str
) -> None:
    (finding,) = examine_replica(state, SEEN)

    assert (finding.check, finding.verdict) == (check, verdict)
    assert said in finding.sentence
    assert finding.hint


def test_replica_whose_clock_is_off_does_not_report_the_jump_as_well() -> None:
    jumps = (ClockJump(at=SEEN + timedelta(minutes=20), seconds=1200),)

    (off,) = examine_replica(ReplicaState(clock_offset=timedelta(minutes=20), jumps=jumps), SEEN)
    (right,) = examine_replica(ReplicaState(jumps=jumps), SEEN)

    assert (off.check, right.check) == ("database clock", "clock jumps")


def test_server_whose_clock_is_off_is_not_said_to_have_a_clock_that_has_not_jumped(
    made: RollOut,
) -> None:
    reported = tuple(examine_replica(ReplicaState(clock_offset=timedelta(minutes=20)), SEEN))

    found = find_all(made.store, made.context(), replace(LEADER, findings=reported))

    assert [each.check for each in found if "clock" in each.check] == ["database clock"]


def test_replica_without_its_database_reports_that_alone() -> None:
    (finding,) = examine_replica(ReplicaState(is_writable=False, is_following=False), SEEN)

    assert finding.check == "writes"


def test_replica_that_is_well_reports_nothing() -> None:
    state = ReplicaState(
        failures={"polls": 0},
        jumps=(ClockJump(at=SEEN - timedelta(days=1), seconds=60),),
        certificate=Path("a.pem"),
        expires_at=SEEN + timedelta(days=30),
    )

    assert list(examine_replica(state, SEEN)) == []


def test_finding_of_a_replica_among_others_names_it(made: RollOut) -> None:
    (reported,) = examine_replica(ReplicaState(is_writable=False), SEEN)
    ill = replica("kvm-2", findings=(reported,))

    (alone,) = find_problems(made.store, made.context(), replace(LEADER, findings=(reported,)))
    (named,) = find_problems(made.store, made.context(), LEADER, ill)

    assert alone == reported
    assert named.sentence == f"Replica kvm-2 at http://kvm-2:8170: {reported.sentence}"


def test_replicas_that_are_away_behind_or_unlike_others_are_findings(made: RollOut) -> None:
    settings = {"notice": "always", "history_retention": "365d"}
    others = {"notice": "when-enabled", "history_retention": ""}
    leader = replace(LEADER, identity=replace(LEADER.identity, settings=settings))
    (reported,) = examine_replica(ReplicaState(is_writable=False), SEEN)
    gone = replica("kvm-2", seen_at=SEEN - timedelta(seconds=10), findings=(reported,))
    slow = replica("kvm-3", changes_behind=5, lag=timedelta(seconds=3))
    late = replica("kvm-4", changes_behind=5, lag=timedelta(seconds=2))
    unlike = replace(LEADER.identity, version="1.3", settings=others)
    other = replace(replica("kvm-5"), identity=unlike)

    found = find_problems(made.store, made.context(), leader, gone, slow, late, other)

    assert [each.sentence for each in found] == [
        "Replica kvm-2 at http://kvm-2:8170 was last seen 10s ago.",
        "Replica kvm-3 at http://kvm-3:8170 lags behind by 5 changes and 3s.",
        "The replicas differ in version: 1.2, 1.3.",
        "The replicas differ in notice: always, when-enabled.",
        "The replicas differ in history_retention: 365d, not set.",
    ]
    assert {(each.check, each.verdict) for each in found} == {("replicas", FindingVerdict.WARN)}
    assert "forewarn replica forget kvm-2" in found[0].hint
    assert "forewarn status" not in " ".join(each.hint for each in found)


def test_lease_that_no_replica_holds_is_a_finding(made: RollOut) -> None:
    (alone,) = find_problems(made.store, made.context(), replica("kvm-1"))
    (several,) = find_problems(made.store, made.context(), replica("kvm-1"), replica("kvm-2"))

    assert (alone.check, alone.verdict) == ("scheduler lease", FindingVerdict.FAIL)
    assert alone.sentence.startswith("The server does not hold the lease, so no event")
    assert several.sentence.startswith("No replica holds the lease, so no event")
    assert alone.sentence.endswith("is announced, started or completed automatically.")


def test_if_every_replica_reports_why_it_does_not_lead_the_lease_refers_to_that(
    made: RollOut,
) -> None:
    off = tuple(examine_replica(ReplicaState(clock_offset=timedelta(minutes=20)), SEEN))
    full = tuple(examine_replica(ReplicaState(records_problem="The disk is full."), SEEN))
    replicas = replica("kvm-1", findings=off), replica("kvm-2", findings=full)

    every = find_problems(made.store, made.context(), *replicas)
    some = find_problems(made.store, made.context(), *replicas, replica("kvm-3"))

    assert [each.check for each in every] == [
        "database clock",
        "state directory",
        "scheduler lease",
    ]
    assert every[-1].hint.startswith("first correct these: database clock, state directory;")
    assert some[-1].hint.startswith("try again in a few seconds; if it still fails, see lease_lost")


def test_worst_finding_comes_first(made: RollOut) -> None:
    made.store.write(lambda tx: pause_server(tx, made.context(), ""))
    (reported,) = examine_replica(ReplicaState(is_writable=False), SEEN)

    found = find_problems(made.store, made.context(), replace(LEADER, findings=(reported,)))

    assert [each.check for each in found] == ["writes", "pause"]


def test_sources_that_fail_are_findings_for_those_who_see_all_scopes(made: RollOut) -> None:
    well = SourceStatus(name="cmdb", kind="run", since=SEEN)
    away = SourceStatus(name="kvm", kind="libvirt", problem="kvm-1 is away.", since=SEEN)
    made.store.write(lambda tx: put_sources(tx, [well]))
    before = find_all(made.store, made.context())
    made.store.write(lambda tx: put_sources(tx, [well, away]))

    (finding,) = findings(made)

    assert "Sources that the fleet follows: cmdb." in {each.sentence for each in before}
    assert finding.sentence == "The fleet does not follow kvm. kvm-1 is away."
    assert findings(made, has_all_scopes=False) == []


def test_message_that_waits_for_long_is_a_finding(made: RollOut) -> None:
    message = example_notification(
        "pager", notification_id="m", who="admin", now=made.real, at=made.real
    )
    made.store.write(lambda tx: tx.put_notification(message))
    made.pass_real_time(timedelta(minutes=5))
    before = findings(made)
    made.pass_real_time(timedelta(seconds=1))

    (finding,) = findings(made)

    assert before == []
    assert finding.sentence == "Messages waiting: 1, the oldest for 5m1s."
