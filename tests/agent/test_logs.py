"""What the log looks like, whatever others have said."""

import logging

import pytest

from forewarn.agent.errors import AgentSettingsError
from forewarn.agent.startup import UNUSABLE, concluded, make_printable, start_logging


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Wartung für ein Gerät", "Wartung für ein Gerät"),
        ("a\nb\rc", "a\\nb\\rc"),
        ("\x1b[31mred", "\\x1b[31mred"),
        ("\u2028\ud800", "\\u2028\\ud800"),
    ],
)
def test_what_ends_lines_or_steers_terminals_is_written_out(text: str, shown: str) -> None:
    assert make_printable(text) == shown


@pytest.mark.parametrize("is_journaled", [True, False])
def test_error_has_its_lines_and_a_message_has_one(
    capsys: pytest.CaptureFixture[str],
    is_journaled: bool,  # noqa: FBT001
) -> None:
    log = logging.getLogger("forewarn")
    before = log.handlers.copy()
    start_logging(is_journaled=is_journaled)
    try:
        logging.getLogger("forewarn.agent").error(
            "event=%s", "A\nB", exc_info=(ValueError, ValueError("why"), None)
        )
    finally:
        log.handlers[:] = before

    said = capsys.readouterr().err.splitlines()
    assert "event=A\\nB" in said[0]
    assert said[1].endswith("ValueError: why")
    assert all(line.startswith("<3>") for line in said) is is_journaled


def test_error_that_ends_the_process_is_written_out(capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> int:
        raise AgentSettingsError("agent.toml", "\x1b[31mkey", "unknown key")

    assert concluded(fail)() == UNUSABLE
    assert "\\x1b[31mkey" in capsys.readouterr().err
