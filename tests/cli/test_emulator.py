"""`forewarn emulator`, as far as it comes before there is a server, and the journal."""

import json
import os
import re
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import Result

from forewarn.cli.companion import ready_file
from forewarn.testing import EmulatedVm, Emulator

Run = Callable[..., Result]
NETWORK = Path("/proc/self/ns/net")


def test_mistake_in_the_fleet_is_told_before_this_process_leaves_its_network(
    run: Run, tmp_path: Path
) -> None:
    (tmp_path / "broken.toml").write_text("[[virtual_machine]]\n")
    before = NETWORK.readlink()

    missing = run("emulator", "--netns", "--fleet", "nowhere.toml", "--", "true")
    broken = run("emulator", "--netns", "--fleet", str(tmp_path / "broken.toml"), "--", "true")

    assert (missing.exit_code, broken.exit_code) == (1, 1)
    assert NETWORK.readlink() == before


def test_machine_of_the_program_is_one_of_the_fleet(run: Run, tmp_path: Path) -> None:
    fleet, empty = tmp_path / "fleet.toml", tmp_path / "empty.toml"
    fleet.write_text('[[virtual_machine]]\nname = "web-0"\n')
    empty.touch()

    wrong = run("emulator", "--fleet", str(fleet), "--vm", "nope", "--", "true")
    none = run("emulator", "--fleet", str(empty), "--", "true")

    assert (wrong.exit_code, none.exit_code) == (2, 2)
    assert f"--vm: {fleet} does not define the virtual machine 'nope'." in wrong.stderr
    assert f"--fleet: {empty} defines no virtual machine." in none.stderr


def test_only_a_file_is_replaced_by_a_ready_file(run: Run, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)

    done = run("emulator", "--ready-file", str(pipe), "--", "true")

    assert done.exit_code == 2
    assert f"--ready-file: {pipe} is not a regular file." in done.stderr
    assert pipe.is_fifo()


def test_ready_file_of_another_server_stays(tmp_path: Path) -> None:
    path = tmp_path / "ready"

    with ready_file(path) as write_first:
        write_first({"NAME": "first"})
        with ready_file(path) as write_second:
            write_second({"NAME": "second"})
        assert not path.exists()
        path.write_text("third")

    assert path.read_text() == "third"


def ask(vm: EmulatedVm, body: bytes | None = None) -> None:
    url = f"{vm.scheduled_events_url}?api-version=2020-07-01"
    request = urllib.request.Request(url, body, {"Metadata": "true"})
    urllib.request.urlopen(request, timeout=60).close()


def test_requests_are_listed_with_their_answers(run: Run) -> None:
    with Emulator() as emulator:
        web, other = emulator.vm("web-0"), emulator.vm("web-1")
        ask(web)
        with pytest.raises(urllib.error.HTTPError) as refused:
            ask(web, b'{"StartRequests":[{"EventId":"mistyped"}]}')
        refused.value.close()
        ask(other)

        def show(*options: str) -> str:
            variables = {"FOREWARN_SERVER": emulator.control_url, "FOREWARN_TOKEN": emulator.token}
            return run("emulator", "requests", *options, **variables).stdout

        table = show("--vm", "WEB-0")
        everything = json.loads(show("-o", "json"))["requests"]
        newest = json.loads(show("--limit", "1", "-o", "json"))["requests"]

    moment = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ"
    path = r"/vm/web-0/metadata/scheduledevents\?api-version=2020-07-01"
    assert re.fullmatch(
        r"AT +VM +METHOD +PATH +STATUS +SECONDS +INCARNATION +ERROR\n"
        rf"{moment}  web-0  GET     {path}  200     \d+\.\d{{3}}    0\n"
        rf"{moment}  web-0  POST    {path}  400     \d+\.\d{{3}} +"
        r"Bad request\. EventId is unknown\n",
        table,
    ), table
    assert [entry["vm"] for entry in everything] == ["web-0", "web-0", "web-1"]
    assert everything[1]["body"] == '{"StartRequests":[{"EventId":"mistyped"}]}'
    assert newest == everything[2:]


def test_server_that_keeps_no_journal_says_so(run: Run) -> None:
    result = run("emulator", "requests")

    assert (result.exit_code, result.stdout) == (4, "")
    assert result.stderr.splitlines()[0] == (
        "forewarn: This server does not record requests; start it with --journal."
    )
