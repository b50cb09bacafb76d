"""What the pages on windows and gates claim is true today."""

import json
import re
from datetime import date, datetime, time, timedelta
from pathlib import Path
from typing import get_args
from zoneinfo import ZoneInfo

import pytest
from tests.web_site import OUTBOUND

from forewarn.domain.gate import Question
from forewarn.domain.names import MaintenanceId, ScopeId
from forewarn.domain.windows import (
    Calendar,
    closes_at,
    describe,
    next_opening,
    read_blackout,
    read_window,
)
from forewarn.files.holidays import LARGEST_FILE, MOST_HOLIDAYS, YEARS_AHEAD
from forewarn.gates import asked_gates
from forewarn.gates.configuration import (
    LONGEST_EVERY,
    LONGEST_TIMEOUT,
    AnyTable,
    read_gates,
)
from forewarn.gates.verdict import MOST_OUTPUT, encode_question
from forewarn.wording.durations import format_duration

REFERENCE = Path(__file__).parent.parent.parent / "docs" / "reference"
WINDOWS = (REFERENCE / "windows.md").read_text(encoding="utf-8")
GATES = (REFERENCE / "gates.md").read_text(encoding="utf-8")
NIGHTS = re.findall(r"^\| `([^`]+)` \| ([\d-]+) \| (\S+) \| (\S+) \|$", WINDOWS, re.MULTILINE)
TABLES = get_args(AnyTable)
KINDS = {kind for table in TABLES for kind in get_args(table.model_fields["kind"].annotation)}


def fence(language: str) -> str:
    (text,) = re.findall(rf"^```{language}\n(.*?)^```$", GATES, re.MULTILINE | re.DOTALL)
    return str(text)


def test_windows_and_blackouts_of_the_reference_are_some() -> None:
    windows = re.findall(r"^\| `([^`]+)` \|", WINDOWS, re.MULTILINE)
    blackouts = re.findall(r"`(\d{4}-[^`]+)`", WINDOWS)

    assert len(windows) == 4 + len(NIGHTS)
    for text in windows:
        read_window(text)
    assert [describe(read_blackout(text)) for text in blackouts] == blackouts
    assert len(blackouts) == 2


@pytest.mark.parametrize(("text", "night", "opens", "closes"), NIGHTS)
def test_nights_of_the_reference_are_as_they_are(
    text: str, night: str, opens: str, closes: str
) -> None:
    window = read_window(text)
    evening = datetime.combine(date.fromisoformat(night), time(18), ZoneInfo(window.zone))
    calendar = Calendar(windows=(window,))

    found = next_opening(calendar, evening, timedelta(0))

    assert found == datetime.fromisoformat(opens)
    assert closes_at(calendar, found) == datetime.fromisoformat(closes)


def test_limits_of_holidays_are_in_the_reference() -> None:
    assert f"more than {LARGEST_FILE:,} characters or {MOST_HOLIDAYS:,} holidays" in WINDOWS
    assert f"written out for {YEARS_AHEAD} years" in WINDOWS


def test_file_of_the_reference_is_one_and_has_every_key(tmp_path: Path) -> None:
    text = fence("toml")
    (tmp_path / "gates.toml").write_text(text, encoding="utf-8")
    (tmp_path / "change.key").write_text("hush", encoding="utf-8")
    (tmp_path / "smoke-test").write_text("#!/bin/sh\n", encoding="utf-8")
    (tmp_path / "smoke-test").chmod(0o755)

    gates = read_gates(tmp_path / "gates.toml", {"PATH": ""}, OUTBOUND)

    assert {known.kind for known in gates.values()} == KINDS
    for key in {key for table in TABLES for key in table.model_fields} - {"secret"}:
        assert re.search(rf"^{key} = ", text, re.MULTILINE), key


def test_kinds_and_limits_of_gates_are_in_the_reference() -> None:
    rows = re.findall(r"^\| `(\w+)` \|", GATES, re.MULTILINE)

    assert set(rows) == KINDS
    assert f"1s to {format_duration(LONGEST_EVERY)}" in GATES
    assert f"1s to {format_duration(LONGEST_TIMEOUT)}" in GATES
    assert f"last {MOST_OUTPUT:,} characters" in GATES
    assert f"at most {asked_gates.LANES} questions at once" in " ".join(GATES.split())


def test_question_of_the_reference_is_what_is_asked() -> None:
    question = Question(
        gate="change",
        maintenance_id=MaintenanceId("m1"),
        scope_ids=(ScopeId("availability-set/web"),),
        steps_done=2,
    )

    shown = json.dumps(json.loads(encode_question(question)), indent=2)

    assert fence("json") == f"{shown}\n"
