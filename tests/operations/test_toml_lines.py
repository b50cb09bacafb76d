"""Where in a TOML file something is."""

import tomllib
from pathlib import Path

import pytest

from forewarn.operations.toml_lines import key_line, place, syntax_line, table_line

TEXT = """attempts = 3

[[target]]
name = "a"

[target.headers]
x = "1"

[[command]]
name = "b"

[[target]]
name = "c"
"""


@pytest.mark.parametrize(
    ("table", "number", "key", "line"),
    [
        ("target", 0, "", 3),
        ("target", 0, "name", 4),
        ("target", 0, "headers", 6),
        ("target", 0, "url", 3),
        ("command", 0, "name", 10),
        ("target", 1, "name", 13),
        ("target", 2, "name", None),
    ],
)
def test_key_is_found_in_the_table_of_its_number(
    table: str, number: int, key: str, line: int | None
) -> None:
    assert table_line(TEXT, table, number, key) == line


def test_key_outside_of_tables_is_found() -> None:
    assert key_line(TEXT, "attempts") == 1
    assert key_line(TEXT, "target") == 3
    assert key_line(TEXT, "nothing") is None


@pytest.mark.parametrize(("text", "line"), [("\na = = 1\n", 2), ("a = ", None)])
def test_line_that_is_not_toml_is_found(text: str, line: int | None) -> None:
    with pytest.raises(tomllib.TOMLDecodeError) as error:
        tomllib.loads(text)

    assert syntax_line(error.value) == line


def test_place_has_the_line_if_it_is_known() -> None:
    assert place(Path("x.toml"), 3) == "x.toml:3"
    assert place(Path("x.toml"), None) == "x.toml"
