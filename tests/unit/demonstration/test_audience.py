"""A pipe gets plain lines; a terminal gets them folded, with the link to the console below."""

import io
import re
import sys

import pytest
from tests.unit.demonstration.conftest import NOW

from forewarn.cli.demonstration.audience import Audience
from forewarn.cli.demonstration.narration import Line

LINK = "http://127.0.0.1:8170/login#fw_0123456789012345678901234567890123456789012"
TEXT = "kvm-1: Freeze of FrontEnd_IN_0, BackEnd_IN_0 is announced; all must approve to start it"


class Terminal(io.StringIO):
    """Something that is written to and says that it is a terminal."""

    def isatty(self) -> bool:
        return True


def open_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Return what stands for a terminal of 80 columns."""
    shown = Terminal()
    monkeypatch.setattr("sys.stdout", shown)
    monkeypatch.setattr("sys.stderr", shown)
    for name, value in {"COLUMNS": "80", "LINES": "24", "TERM": "xterm"}.items():
        monkeypatch.setenv(name, value)
    return shown


def test_pipe_gets_one_plain_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    audience = Audience()

    with audience:
        audience.hear([Line(at=NOW, text=TEXT)])

    assert not audience.stays
    assert capsys.readouterr().out == f"08:00:00  {TEXT}\n"


def test_terminal_folds_lines_beside_their_time_and_keeps_the_link_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    terminal = open_terminal(monkeypatch)
    audience = Audience()

    with audience:
        audience.hear([Line(at=NOW, text=TEXT)])
        audience.keep_in_sight(LINK)

    assert audience.stays
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", terminal.getvalue())
    assert f"\n{' ' * 10}approve to start it" in shown
    assert LINK in terminal.getvalue()


def test_warnings_go_above_the_link(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = open_terminal(monkeypatch)
    audience = Audience()

    with audience:
        audience.keep_in_sight(LINK)
        sys.stderr.write("a warning\n")

    shown = terminal.getvalue()
    assert shown.rindex("a warning") < shown.rindex(LINK)


def test_suggestions_can_be_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    command = "  forewarn scenario run live-migration --vm db --speed 60 " + "x" * 80
    terminal = open_terminal(monkeypatch)
    audience = Audience()

    with audience:
        audience.be_told([command])

    assert command in terminal.getvalue()
