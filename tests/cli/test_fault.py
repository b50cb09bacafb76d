"""`forewarn fault`: what it prints and how it fails."""

import json
from collections.abc import Callable
from textwrap import dedent

import pytest
from typer.testing import Result

from forewarn.domain.fault import FAULTS

Run = Callable[..., Result]


def shown(result: Result) -> str:
    assert result.exit_code == 0, result.output
    return result.stdout


def table(text: str) -> str:
    return dedent(text).lstrip("\n")


def test_faults_are_set_listed_and_cleared(run: Run) -> None:
    refuse = "fault set WEB-0 status --status 429 --retry-after 5 --times 3"
    assert shown(run(*refuse.split())) == table("""
        VM     FAULT   TIMES  SECONDS  STATUS  RETRY AFTER  TYPE
        web-0  status  3               429     5
        """)
    shown(run("fault", "set", "solo", "unknown-type", "--type", "Nap"))
    shown(run("fault", "set", "web-0", "slow", "--seconds", "1.5"))

    assert shown(run("fault", "list")) == table("""
        VM     FAULT         TIMES  SECONDS  STATUS  RETRY AFTER  TYPE
        web-0  slow                 1.5
        web-0  status        3               429     5
        solo   unknown-type                                       Nap
        """)
    assert shown(run("fault", "clear", "web-0", "status")) == table("""
        VM     FAULT  TIMES  SECONDS  STATUS  RETRY AFTER  TYPE
        web-0  slow          1.5
        """)
    assert json.loads(shown(run("fault", "clear", "web-0", "-o", "json"))) == {"faults": []}
    left = json.loads(shown(run("fault", "list", "-o", "json")))["faults"]
    assert [fault["vm"] for fault in left] == ["solo"]


def test_every_fault_can_be_set_and_cleared(run: Run) -> None:
    needed = {"seconds": ("--seconds", "2"), "status": ("--status", "503")}

    for kind, traits in FAULTS.items():
        given = [word for name in traits.needed for word in needed[name]]
        shown(run("fault", "set", "solo", kind, *given))
    listed = json.loads(shown(run("fault", "list", "-o", "json")))["faults"]
    for kind in FAULTS:
        shown(run("fault", "clear", "solo", kind))

    assert [fault["kind"] for fault in listed] == list(FAULTS)
    assert json.loads(shown(run("fault", "list", "-o", "json"))) == {"faults": []}


@pytest.mark.parametrize("arguments", ["set nobody reset", "clear nobody"])
def test_virtual_machine_that_is_none_is_three(run: Run, arguments: str) -> None:
    result = run("fault", *arguments.split())

    assert (result.exit_code, result.stdout) == (3, "")
    assert result.stderr == (
        "forewarn: Unknown virtual machine 'nobody'.\n  try: forewarn vm list\n"
    )


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ("set solo slow", "A fault of kind slow needs seconds."),
        ("set solo slow --seconds nan", "seconds must be more than 0 and at most 3600, not nan."),
        ("set solo slow --seconds 1 --type Nap", "A fault of kind slow does not take event_type."),
        ("set solo reset --times 0", "times must be a number from 1 to 1000000, not 0."),
        ("set solo grumpy", "'grumpy' is not one of"),
        ("set solo", "Missing argument 'KIND'"),
        ("clear", "Missing argument 'VM'"),
        ("clear solo grumpy", "'grumpy' is not one of"),
    ],
)
def test_wrong_usage_is_two(run: Run, arguments: str, problem: str) -> None:
    result = run("fault", *arguments.split())

    assert (result.exit_code, result.stdout) == (2, "")
    assert problem in " ".join(result.stderr.split())
    assert shown(run("fault", "list")).count("\n") == 1
