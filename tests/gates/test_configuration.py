"""The file of gates, and what is wrong with it."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from tests.gates.conftest import put
from tests.web_site import OUTBOUND, Site

from forewarn.domain.gate import Question
from forewarn.files.tables import TablesError
from forewarn.gates.configuration import read_gates
from forewarn.gates.verdict import GateVerdict

ENVIRONMENT = {"PATH": "/usr/bin:/bin"}
HTTP = '[[gate]]\nname = "web"\nkind = "http"\nurl = "https://hush.example/T0KEN"\n'
COMMAND = '[[gate]]\nname = "smoke"\nkind = "command"\nrun = ["true"]\n'
QUERY = (
    '[[gate]]\nname = "up"\nkind = "prometheus"\nurl = "http://p"\nquery = "up"\nexpect = "> 0"\n'
)
HOOK = '[[gate]]\nname = "change"\nkind = "webhook"\nurl = "http://c"\n'

Write = Callable[[str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write_file(text: str) -> Path:
        path = tmp_path / "gates.toml"
        path.write_text(text, encoding="utf-8")
        return path

    return write_file


def test_without_a_file_there_is_no_gate() -> None:
    assert read_gates(None, ENVIRONMENT, OUTBOUND) == {}


def test_file_has_gates_of_every_kind(write: Write) -> None:
    every = 'every = "5m"\ntimeout = "2m"\n'

    gates = read_gates(write(HTTP + COMMAND + QUERY + HOOK + every), ENVIRONMENT, OUTBOUND)

    assert [(name, gate.kind, gate.every) for name, gate in gates.items()] == [
        ("web", "http", timedelta(seconds=30)),
        ("smoke", "command", timedelta(seconds=30)),
        ("up", "prometheus", timedelta(seconds=30)),
        ("change", "webhook", timedelta(minutes=5)),
    ]


def test_program_may_be_beside_the_file(write: Write, question: Question) -> None:
    path = write(COMMAND.replace('"true"', '"./check", "a b"'))
    script = path.with_name("check")
    script.write_text('#!/bin/sh\necho "$1 $PATH"\n', encoding="utf-8")
    script.chmod(0o755)

    verdict = put(read_gates(path, ENVIRONMENT, OUTBOUND)["smoke"].gate, question)

    assert verdict == GateVerdict(is_open=True, output="a b /usr/bin:/bin")


def test_secret_may_be_in_a_file_beside_it(write: Write, site: Site, question: Question) -> None:
    path = write(HOOK.replace("http://c", site.url) + 'secret_file = "key"\n')
    path.with_name("key").write_text("hush\n", encoding="utf-8")

    put(read_gates(path, ENVIRONMENT, OUTBOUND)["change"].gate, question)

    assert "forewarn-signature" in site.received[0].headers


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        ("a = = 1\n", 1, "Not valid TOML: "),
        ("\nnope = 1\n", 2, "nope: unknown key; known keys: gate."),
        ('[gate]\nname = "x"\n', 1, "gate: it is not a list; in TOML, write [[gate]]."),
        (HTTP.replace("https", "ftp"), 4, "url of gate 1: the URL must begin with http"),
        (HTTP.replace("://", "://u:T0KEN/P@"), 4, "url of gate 1: the host or port is invalid"),
        (
            HTTP.replace('"web"', '"w e b"'),
            2,
            "name of gate 1: 'w e b' is not a valid name for a gate",
        ),
        (HTTP.replace('"http"', '"Bearer T0KEN"'), 3, "kind of gate 1: it must be one of 'http', "),
        (
            HTTP.replace('kind = "http"\n', ""),
            1,
            "kind of gate 1: write http, command, prometheus or webhook.",
        ),
        ("gate = [5]\n", 1, "gate 1: it is not a table of keys and values."),
        (HTTP + 'headers = "T0KEN"\n', 5, "headers of gate 1: it is not a table of keys and "),
        (HTTP + 'status = "T0KEN"\n', 5, "status of gate 1: it is not a whole number."),
        (HTTP.replace("url", "uri"), 1, "url of gate 1: it is required."),
        (HTTP + HTTP.replace("web", "WEB"), 6, "name of gate 2: 'WEB' is already defined."),
        (HTTP + "status = 99\n", 5, "status of gate 1: it is too low; the minimum is 100."),
        (HTTP + 'headers = { X = "a\\nb" }\n', 5, "headers of gate 1: 'X' is not a valid header"),
        (
            HTTP + "every = 0.5\n",
            5,
            "every of gate 1: invalid duration '0.5'; use 30s",
        ),
        (HTTP + 'every = "2d"\n', 5, "every of gate 1: it must be 1s to 1d."),
        (HTTP + 'timeout = "0s"\n', 5, "timeout of gate 1: it must be 1s to 2m."),
        (HTTP + 'secret = "x"\n', 5, "secret of gate 1: unknown key."),
        (COMMAND.replace('"true"', ""), 4, "run of gate 1: it is empty."),
        (COMMAND.replace('["true"]', '"true"'), 4, "run of gate 1: it is not a list."),
        (
            COMMAND.replace("true", "no-such"),
            4,
            "run of gate 1: program not found or not executable: 'no-such'",
        ),
        (
            COMMAND.replace("true", "./no"),
            4,
            "run of gate 1: program not found or not executable: './no'",
        ),
        (
            COMMAND.replace("true", "a\\u0000"),
            4,
            "item 1 of run of gate 1: a command cannot contain",
        ),
        (QUERY.replace("> 0", "many"), 6, "expect of gate 1: 'many' is not a valid comparison"),
        (HOOK + 'secret = "a"\nsecret_file = "b"\n', 1, "gate 1: secret and secret_file"),
        (HOOK + 'secret_file = "b"\n', 5, "secret_file of gate 1: the secret cannot be read"),
        (HOOK + 'secret_file = "empty"\n', 5, "secret_file of gate 1: the secret file is empty"),
    ],
)
def test_what_is_wrong_is_refused_with_its_line(
    write: Write, text: str, line: int, problem: str
) -> None:
    path = write(text)
    path.with_name("empty").write_text("\n", encoding="utf-8")

    with pytest.raises(TablesError) as refused:
        read_gates(path, ENVIRONMENT, OUTBOUND)

    said = str(refused.value)
    assert said.startswith(f"{path}:{line}: {problem}")
    assert "T0KEN" not in said


def test_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TablesError, match=r"nowhere\.toml cannot be read"):
        read_gates(tmp_path / "nowhere.toml", ENVIRONMENT, OUTBOUND)
