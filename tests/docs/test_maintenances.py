"""The page about Maintenances: its commands run, and its tables are those of the code."""

import re
import shlex
from pathlib import Path

import pytest
from tests.cli.test_golden import serving
from typer.testing import CliRunner

from forewarn.cli.app import app
from forewarn.desk.maintenances import MaintenanceOrderRequest
from forewarn.domain.blockers import BrakeKind
from forewarn.domain.standing import MaintenanceStatus
from forewarn.settings import Settings
from forewarn.settings_table import ClockKind, ExecutorKind

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "maintenances.md"
FLEET = """
[[availability_set]]
name = "web"
[[scale_set]]
name = "batch"
[[host]]
name = "kvm-1"
labels = { room = "north" }
[[virtual_machine]]
name = "web-0"
availability_set = "web"
host = "kvm-1"
labels = { tier = "front" }
[[virtual_machine]]
name = "web-1"
availability_set = "web"
[[virtual_machine]]
name = "batch-0"
scale_set = "batch"
[[virtual_machine]]
name = "batch-1"
scale_set = "batch"
"""
GATES = '[[gate]]\nname = "smoke"\nkind = "command"\nrun = ["true"]\n'
DAYS = """BEGIN:VCALENDAR
VERSION:2.0
PRODID:-//test//EN
BEGIN:VEVENT
UID:1
DTSTART;VALUE=DATE:29990501
SUMMARY:Labour Day
END:VEVENT
END:VCALENDAR
"""


def _page() -> str:
    return PAGE.read_text(encoding="utf-8")


def _words(title: str) -> set[str]:
    """Return the first word of each row of the table whose first column is called *title*."""
    table = _page().partition(f"\n| {title} |")[2].partition("\n\n")[0]
    return set(re.findall(r"^\| `([a-z -]+)` \|", table, re.MULTILINE))


def test_commands_of_the_page_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in {"fleet.toml": FLEET, "gates.toml": GATES, "days.ics": DAYS}.items():
        Path(name).write_text(text, encoding="utf-8")
    settings = Settings(
        database="sqlite:///forewarn.db",
        clock=ClockKind.VIRTUAL,
        executor=ExecutorKind.SIMULATED,
        fleet=Path("fleet.toml"),
        gates=Path("gates.toml"),
    )
    lines = re.findall(r"^\$ forewarn (.*)$", _page(), re.MULTILINE)
    begun = ""

    with serving(settings) as address:
        environment = {"FOREWARN_SERVER": address, "FOREWARN_STATE_DIR": str(tmp_path)}
        for line in lines:
            words = [begun if word == "ID" else word for word in shlex.split(line)]
            done = CliRunner().invoke(app, words, env=environment)
            assert done.exit_code == 0, f"{line}: {done.stderr}"
            begun = begun or done.stdout.split()[1]

    assert len(lines) == 11


def test_brakes_of_the_page_are_those_there_are() -> None:
    assert _words("brake") == set(BrakeKind)


def test_statuses_of_the_page_are_those_there_are() -> None:
    assert _words("status") == set(MaintenanceStatus)


def test_what_a_course_has_in_the_api_is_on_the_page() -> None:
    course = MaintenanceOrderRequest.model_fields.keys() - {
        "event_type", "scopes", "virtual_machines", "labels", "hosts", "host_labels",
        "description", "duration_in_seconds",
    }  # fmt: skip

    assert [name for name in course if f"`{name}`" not in _page()] == []
