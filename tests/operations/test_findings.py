"""Findings: incidents of the last day, and tasks that run although their window has closed."""

from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest
from tests.roll_out import RollOut

from forewarn.domain.finding import Finding, FindingVerdict
from forewarn.domain.windows import Calendar, read_window
from forewarn.operations.findings import Incident, find_findings, note_incident
from forewarn.operations.snapshots import look
from forewarn.ports.store import Reading
from forewarn.storage.sqlite import open_sqlite

FLEET = '[[virtual_machine]]\nname = "web-0"\nhost = "kvm-1"\n'
CALENDAR = Calendar(windows=(read_window("Mon 08:00-09:00 UTC"),))


@pytest.fixture
def made(tmp_path: Path) -> Iterator[RollOut]:
    with closing(open_sqlite(tmp_path / "forewarn.db", is_durable=False)) as store:
        yield RollOut(store, FLEET)


def findings(made: RollOut, *, has_all_scopes: bool = True) -> list[Finding]:
    def find(reading: Reading) -> list[Finding]:
        seen = look(reading, made.context())
        return list(find_findings(reading, made.context(), seen, has_all_scopes=has_all_scopes))

    return made.store.read(find)


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


def test_of_many_incidents_the_newest_are_kept(made: RollOut) -> None:
    for number in range(30):
        incident = Incident(at=made.real, sentence=f"Number {number}.", hint="")
        made.store.write(lambda tx, incident=incident: note_incident(tx, incident))  # type: ignore[misc]

    found = findings(made)

    assert len(found) == 20
    assert found[-1].sentence.endswith("Number 29.")
