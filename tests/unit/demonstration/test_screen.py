"""A frame of the demo fits its terminal, and says what each virtual machine does."""

from io import StringIO

import pytest
from rich.console import Console
from tests.unit.demonstration.conftest import announced, approved
from tests.unit.demonstration.test_table import picture

from forewarn.cli.demonstration.picture import Doing
from forewarn.cli.demonstration.screen import Scene


def frame(width: int) -> str:
    """Return what a terminal of *width* columns shows while two machines wait for another."""
    events = announced(1, "web-2", "web-5"), approved(announced(2, "BackEnd_IN_1"))
    shown = StringIO()
    console = Console(file=shown, width=width, height=40)
    console.print(Scene(picture(*events, BackEnd_IN_1=Doing.DRAINING), (), ()))
    return shown.getvalue()


@pytest.mark.parametrize(("width", "has_scopes"), [(100, True), (80, True), (60, False)])
def test_frame_says_in_full_what_each_machine_does(width: int, *, has_scopes: bool) -> None:
    shown = frame(width)

    assert "in service" in shown
    assert "drains, 4 s left" in shown
    assert "…" not in shown
    assert ("SCOPE" in shown) == has_scopes
    assert max(map(len, shown.splitlines())) <= width
