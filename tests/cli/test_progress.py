"""start --wait on a terminal: bars that say how far each scope is."""

from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from forewarn.cli.progress import ProgressBar, shown_as_bars, stretches


def event(scope_id: str, machines: int, *, has_ended: bool) -> dict[str, Any]:
    ended_at = "2026-01-05T08:20:00Z" if has_ended else None
    return {"scope_id": scope_id, "resources": ["vm"] * machines, "ended_at": ended_at}


def step(scope_id: str, machines: int) -> dict[str, Any]:
    return {"shares": [{"scope_id": scope_id, "resources": ["vm"] * machines}]}


ROW = {
    "status_text": "running",
    "events": [
        event("set/done", 2, has_ended=True),
        event("set/web", 3, has_ended=True),
        event("set/web", 2, has_ended=False),
    ],
    "remaining": [step("set/db", 4), step("set/web", 1)],
}


def test_progress_is_that_of_all_and_of_each_scope_that_is_not_done() -> None:
    assert stretches(ROW) == [
        ProgressBar("running", done=5, total=12, is_under_way=True),
        ProgressBar("set/web", done=3, total=6, is_under_way=True),
        ProgressBar("set/db", done=0, total=4, is_under_way=False),
    ]


@pytest.fixture
def console(monkeypatch: pytest.MonkeyPatch) -> Console:
    monkeypatch.setenv("TERM", "xterm")  # rich draws nothing on a dumb terminal
    return Console(file=StringIO(), force_terminal=True, width=80, color_system=None)


def test_bars_are_drawn_as_they_change(console: Console) -> None:
    with shown_as_bars(console) as tell:
        tell(ROW)
        tell({**ROW, "status_text": "waiting", "events": ROW["events"][:1], "remaining": []})

    drawn = console.file.getvalue()  # type: ignore[attr-defined]
    assert "waiting" in drawn
    assert "2/2" in drawn


def test_no_more_bars_are_drawn_than_fit(console: Console) -> None:
    remaining = [step(f"s/{i}", 1) for i in range(99)]
    many = {"status_text": "running", "events": [], "remaining": remaining}

    with shown_as_bars(console) as tell:
        tell(many)

    drawn = console.file.getvalue()  # type: ignore[attr-defined]
    assert "0/99" in drawn
    assert "s/10" in drawn
    assert "s/11" not in drawn
