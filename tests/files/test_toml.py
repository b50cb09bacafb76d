"""Where in a TOML file something is."""

import time
from pathlib import Path

import pytest

from forewarn.files.toml import NotTomlError, TomlLines, decode, place

TEXT = """attempts = 3

[[target]]
name = "a"
template = \"\"\"
[[target]]
name = "z"
\"\"\"

[target.headers]
name = "1"

[["command"]]
"name" = "b"

[[ target ]] # the second
name = "c"
headers.x = "1"
[server]
port = 1
"""


@pytest.mark.parametrize(
    ("table", "number", "key", "line"),
    [
        ("target", 0, "", 3),
        ("target", 0, "name", 4),
        ("target", 0, "headers", 10),
        ("target", 0, "url", 3),
        ("command", 0, "name", 14),
        ("target", 1, "name", 17),
        ("target", 1, "headers", 18),
        ("target", 2, "name", 3),
        ("server", 0, "port", 20),
        ("nothing", 0, "name", None),
    ],
)
def test_key_is_found_in_the_table_of_its_number(
    table: str, number: int, key: str, line: int | None
) -> None:
    assert TomlLines(TEXT).find(table, number, key) == line
    assert TomlLines(TEXT.replace("\n", "\r\n")).find(table, number, key) == line


def test_first_of_several_keys_is_found() -> None:
    assert TomlLines(TEXT).find("target", 1, "url", "name") == 17


def test_key_outside_of_tables_is_found() -> None:
    lines = TomlLines("\ufeff" + TEXT)

    assert lines.find_key("attempts") == 1
    assert lines.find_key("target") == 3
    assert lines.find_key("nothing") is None


def test_tables_are_known_by_their_names() -> None:
    names = TomlLines(TEXT).names

    assert names == {("target", 0): "a", ("command", 0): "b", ("target", 1): "c", ("server", 0): ""}


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        ("\na = = 1\n", 2, "Invalid value"),
        ("\na = ", 2, "Invalid value"),
        ("a = '''\n\n", 2, "Expected"),
        (f"a = {'9' * 5000}\n", 1, "digits"),
        (f"a = 0x{'f' * 5000}\n", 1, "digits"),
        (f"a = {'[' * 9000}{']' * 9000}\n", 1, "nested too deeply"),
    ],
)
def test_line_that_is_not_toml_is_found(text: str, line: int, problem: str) -> None:
    with pytest.raises(NotTomlError, match=f"^Not valid TOML: .*{problem}") as refused:
        decode(text)

    assert refused.value.line == line
    assert str(refused.value).endswith(".")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("x = [\n" + '{at = "0s"},\n' * 20_000 + "7]\n", 1),
        ('x = """\n' + "a ]\n" * 20_000 + '"""\n', None),
    ],
    ids=["list", "text"],
)
def test_line_is_found_or_given_up_in_a_moment_however_long_a_statement_is(
    text: str, line: int | None
) -> None:
    began = time.thread_time()

    assert TomlLines(text).find_key("x") == line
    assert time.thread_time() - began < 5


def test_name_that_is_too_long_a_number_does_not_keep_other_lines_from_being_found() -> None:
    lines = TomlLines(f"[[target]]\nname = 0x{'f' * 5000}\n[[target]]\nname = 'c'\n")

    assert lines.find("target", 1, "name") == 4


def test_place_has_the_line_if_it_is_known() -> None:
    assert place(Path("x.toml"), 3) == "x.toml:3"
    assert place(Path("x.toml"), None) == "x.toml"
