"""What is kept of what a gate says."""

import time

import pytest

from forewarn.gates.verdict import MOST_OUTPUT, tidy


@pytest.mark.parametrize("start", ["\x1b]", "\x1b[", "\x1b", "\x1b]0;x"])
def test_commands_that_never_end_are_tidied_up_in_a_moment(start: str) -> None:
    began = time.thread_time()

    tidy(start * 80_000)

    assert time.thread_time() - began < 2


@pytest.mark.parametrize(
    ("output", "kept"),
    [
        ("\x1b]0;a title\x07low", "low"),
        ("\x1b]8;;http://a.example\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1b[1;32mgreen\x1b[0m\r\n\tnext \x1b(B", "green\n next"),
        ("a" * 100_000 + "\x1b[1mend", "a" * (MOST_OUTPUT - 3) + "end"),
    ],
)
def test_last_of_it_is_kept_without_commands_to_a_terminal(output: str, kept: str) -> None:
    assert tidy(output) == kept
