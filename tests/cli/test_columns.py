"""Tables fit their terminal, and no word is broken for it."""

from collections.abc import Callable
from textwrap import dedent

import pytest
from tests.cli.test_terminal import on_terminal
from typer.testing import Result

from forewarn.cli.output import lay_out, width_of

Run = Callable[..., Result]
TITLES = ("NAME", "SCOPE", "UPDATE DOMAIN", "REASON", "RESOURCES")
LINES = [("web-0", "availability-set/web", "0", "", "web-0,web-1"), ("db", "", "12", "", "db")]


def laid_out(room: int | None) -> str:
    table = lay_out(TITLES, LINES, room)
    assert table is not None
    assert room is None or max(map(len, table)) <= room
    return "\n".join(table) + "\n"


@pytest.mark.parametrize("room", [None, 100, 64])
def test_table_is_as_wide_as_its_content_if_that_fits(room: int | None) -> None:
    assert laid_out(room) == dedent("""\
        NAME   SCOPE                 UPDATE DOMAIN  REASON  RESOURCES
        web-0  availability-set/web  0                      web-0,web-1
        db                           12                     db
        """)


def test_titles_are_broken_before_cells() -> None:
    assert laid_out(60) == dedent("""\
        NAME   SCOPE                 UPDATE  REASON  RESOURCES
                                     DOMAIN
        web-0  availability-set/web  0               web-0,web-1
        db                           12              db
        """)


def test_cells_are_broken_between_words_items_and_parts_of_paths() -> None:
    assert laid_out(52) == dedent("""\
        NAME   SCOPE              UPDATE  REASON  RESOURCES
                                  DOMAIN
        web-0  availability-set/  0               web-0,
               web                                web-1
        db                        12              db
        """)


def test_columns_without_content_are_left_out_before_words_are_broken() -> None:
    assert "REASON" not in laid_out(45)


def test_table_that_does_not_fit_is_none() -> None:
    assert lay_out(TITLES, LINES, 40) is None


def test_table_without_lines_is_its_titles() -> None:
    assert lay_out(("GATE", "KIND"), [], 80) == ["GATE  KIND"]
    assert lay_out(("GATE", "KIND"), [], 5) is None


def test_wide_characters_take_two_columns_and_accents_none() -> None:
    assert [width_of(text) for text in ("web", "wéb", "we\N{COMBINING ACUTE ACCENT}b", "維持")] == [
        3,
        3,
        3,
        4,
    ]


def test_narrow_terminal_shows_whole_words(run: Run, environment: dict[str, str]) -> None:
    run("event", "create", "--type", "Reboot", "--resource", "web-0")

    for columns in ("80", "60", "40"):
        code, seen = on_terminal(environment, "audit", COLUMNS=columns)

        assert code == 0
        for word in ("operator", "127.0.0.1", "2026-01-05"):
            assert word in seen


def test_titles_of_an_empty_table_are_shown_on_the_narrowest_terminal(
    run: Run, environment: dict[str, str]
) -> None:
    assert run("event", "list").exit_code == 0

    assert on_terminal(environment, "event", "list", COLUMNS="20")[1].startswith("EVENT ID  TYPE")


def test_terminal_that_is_too_narrow_shows_field_by_field(
    run: Run, environment: dict[str, str]
) -> None:
    run("event", "create", "--type", "Reboot", "--resource", "web-0")
    run("event", "create", "--type", "Reboot", "--resource", "solo")

    _, seen = on_terminal(environment, "event", "list", COLUMNS="40")

    assert "status:      Scheduled\r\nsource:      Platform\r\n" in seen
    assert "resources:   solo\r\n" in seen
    assert "\r\n\r\nevent id:" in seen
