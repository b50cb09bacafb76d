"""The one reader of operators' files: every mistake at once, and what an address may be."""

from datetime import timedelta
from pathlib import Path
from typing import Annotated, ClassVar

import pytest
from pydantic import TypeAdapter, ValidationError

from forewarn.domain.errors import InvalidNameError
from forewarn.files.tables import (
    Address,
    NamedTable,
    Table,
    TablesError,
    WrongKeyError,
    duration,
    find_command,
    read_tables,
)


class Door(NamedTable):
    noun: ClassVar = "door"
    height: int = 2
    url: Address = "http://door.example"


class Window(Table):
    opens_for: Annotated[timedelta, duration()] = timedelta(hours=1)
    closes_for: Annotated[timedelta, duration(timedelta(minutes=2))] = timedelta(minutes=1)


class Doors(Table):
    colour: str = "red"
    door: tuple[Door, ...] = ()
    window: tuple[Window, ...] = ()


def knock(door: Door) -> str:
    if door.height > 2:
        raise WrongKeyError("height", "It is too high.")
    return door.name


def read(path: Path, text: str) -> tuple[str, ...]:
    path.write_text(text, encoding="utf-8")
    file = read_tables(path, Doors)
    return file.build("door", file.content.door, knock)


def test_tables_are_read_and_made_into_something(tmp_path: Path) -> None:
    text = '\ufeffcolour = "blue"\n[[door]]\nname = "a"\n[[door]]\nname = "b"\n'

    assert read(tmp_path / "doors.toml", text) == ("a", "b")


def test_line_on_which_a_table_begins_is_found(tmp_path: Path) -> None:
    path = tmp_path / "doors.toml"
    path.write_text('colour = "blue"\n[[door]]\nname = "a"\n\n[[door]]\nname = "b"\n')

    file = read_tables(path, Doors)

    assert [file.line_of("door", number) for number in (0, 1)] == [2, 5]


def test_every_mistake_is_told_with_its_line_in_the_order_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "doors.toml"
    text = (
        '[[door]]\nname = "a b"\nurl = "ftp://SECRET"\n[[door]]\nheight = "x"\nfloor = 1\n[wall]\n'
    )

    with pytest.raises(TablesError) as refused:
        read(path, text)

    assert str(refused.value).splitlines() == [
        f"{path}:2: name of door 1: {InvalidNameError('door', 'a b')!s}",
        f"{path}:3: url of door 1: the URL must begin with http:// or https://.",
        f"{path}:4: name of door 2: it is required.",
        f"{path}:5: height of door 2: it is not a whole number.",
        f"{path}:6: floor of door 2: unknown key.",
        f"{path}:7: wall: unknown key; known keys: colour, door, window.",
    ]


def test_mistakes_that_show_later_are_told_at_once_too(tmp_path: Path) -> None:
    path = tmp_path / "doors.toml"
    text = '[[door]]\nname = "a"\nheight = 3\n[[door]]\nname = "A"\n[[door]]\nname = "b"\n'

    with pytest.raises(TablesError) as refused:
        read(path, text)

    assert str(refused.value).splitlines() == [
        f"{path}:3: height of door 1: it is too high.",
        f"{path}:5: name of door 2: 'A' is already defined.",
    ]


def test_durations_are_read_as_people_type_them(tmp_path: Path) -> None:
    path = tmp_path / "doors.toml"
    path.write_text('[[window]]\nopens_for = "2h"\ncloses_for = 90\n', encoding="utf-8")

    file = read_tables(path, Doors)

    (window,) = file.build("window", file.content.window, lambda window: window)
    assert (window.opens_for, window.closes_for) == (timedelta(hours=2), timedelta(seconds=90))


def test_durations_out_of_their_bounds_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "doors.toml"

    with pytest.raises(TablesError) as refused:
        read(path, '[[window]]\nopens_for = "0s"\ncloses_for = "3m"\n')

    assert str(refused.value).splitlines() == [
        f"{path}:2: opens_for of window 1: it must be longer than zero.",
        f"{path}:3: closes_for of window 1: it must be 1s to 2m.",
    ]


def test_entry_that_is_no_table_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TablesError, match=r"doors\.toml:1: door 1: "):
        read(tmp_path / "doors.toml", "door = [1]\n")


def test_more_than_a_hundred_mistakes_are_cut_short(tmp_path: Path) -> None:
    with pytest.raises(TablesError) as refused:
        read(tmp_path / "doors.toml", "[[door]]\n" * 130)

    *told, last = str(refused.value).splitlines()
    assert len(told) == 100
    assert last.endswith("doors.toml has 30 more mistakes.")


@pytest.mark.parametrize("content", [None, b"colour = '\xff'\n"], ids=["missing", "not UTF-8"])
def test_file_that_cannot_be_read_is_refused(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "doors.toml"
    if content is not None:
        path.write_bytes(content)

    with pytest.raises(TablesError, match=r"doors\.toml cannot be read: "):
        read_tables(path, Doors)


def test_program_is_found_on_the_path_or_beside_the_file(tmp_path: Path) -> None:
    (tmp_path / "check").write_text("#!/bin/sh\n", encoding="utf-8")
    (tmp_path / "check").chmod(0o755)
    beside = str(tmp_path / "check")

    assert find_command(("./check", "-v"), tmp_path, "") == (beside, "-v")
    assert find_command(("check",), Path(), str(tmp_path)) == (beside,)
    with pytest.raises(
        WrongKeyError, match="program not found or not executable: 'check'"
    ) as refused:
        find_command(("check",), tmp_path, "", "verify")
    assert refused.value.key == "verify"


ADDRESS = TypeAdapter[str](Address)


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:8080/hook",
        "http://[::1]:8080/hook",
        "https://user:p%2Fass@hooks.example/a?b=c",
        "https://bücher.example/",
    ],
)
def test_address_with_a_host_is_taken(url: str) -> None:
    assert ADDRESS.validate_python(url) == url


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("ftp://hooks.example/", "begin with http"),
        ("hooks.example", "begin with http"),
        ("https://user:SECRET/PASS@hooks.example/", "host or port is invalid"),
        ("https://../", "host or port is invalid"),
        ("https://:80/", "host or port is invalid"),
        ("https://hooks.example:99999/", "host or port is invalid"),
        ("https://hooks.example:0/", "host or port is invalid"),
        ("https://[::1/", "host or port is invalid"),
    ],
)
def test_address_that_leads_nowhere_is_refused_without_its_secrets(url: str, problem: str) -> None:
    with pytest.raises(ValidationError, match=problem) as refused:
        ADDRESS.validate_python(url)

    (error,) = refused.value.errors(include_input=False, include_url=False)
    assert "SECRET" not in error["msg"]
