"""The fixtures, in pytest processes of their own, as their users have them."""

import re
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(300)

Run = Callable[..., subprocess.CompletedProcess[str]]
MISTAKES = {
    'emulator.vm("web-9")': "Unknown virtual machine 'web-9'; known: web-0, web-1.",
    'emulator.announce("Reboot", "web-9")': "known: web-0, web-1.",
    'emulator.announce("Crash", "web-0")': "'Crash' is not one of Freeze, ",
    'emulator.run_scenario("crash", "web-0")': "Unknown scenario 'crash'; known: canceled-",
    "emulator.clock.advance(15)": "use advance(minutes=15)",
    'emulator.vm("web-0").fault("status")': "A fault of kind status needs status.",
    'emulator.vm("web-0").fault("crash")': "'crash' is not one of slow, ",
    'emulator.vm("web-0").reboot(notice=timedelta(1, 1)).complete()': "is Scheduled",
    'emulator.vm("web-0").reboot(notice=timedelta(minutes=1))': "the earliest is ",
    'emulator.vm("web-0").reboot().assert_approved(by="web-9")': "known: web-0, web-1.",
    'emulator.vm("web-0").reboot().assert_approved()': "was not approved; web-0 sent no",
    'emulator.vm("web-0").reboot().assert_status("Started")': "is Scheduled, not Started",
    'emulator.vm("web-0").reboot().assert_not_approved()': "but no virtual machine polled",
    'emulator.await_polled(emulator.vm("web-0"), timeout=0)': "web-0 got no document within 0 s",
    'emulator.await_seen(emulator.vm("web-0").reboot(), timeout=0)': "was not shown to web-0",
    'Emulator({"cattle": []})': "cattle",
    'Emulator(notice="never").start()': "Invalid setting notice",
}
"""What authors of tests get wrong, and what they are told."""
OURS = {"forewarn", "xdist"}
WITHOUT_OTHERS = [
    f"-pno:{plugin.name}" for plugin in entry_points(group="pytest11") if plugin.name not in OURS
]
"""Plugins that have nothing to do with ours take half of the time of a start."""


@pytest.fixture
def run_pytest(tmp_path: Path) -> Run:
    """Return a function that runs the tests in some files, far from our own configuration."""

    def run(*options: str, **files: str) -> subprocess.CompletedProcess[str]:
        (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --strict-markers\n")
        for name, text in files.items():
            (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
        pytest_alone = [sys.executable, "-m", "pytest", "-pno:cacheprovider", *WITHOUT_OTHERS]
        return subprocess.run(
            [*pytest_alone, *options],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    return run


def test_each_test_has_an_emulator_of_its_own(run_pytest: Run) -> None:
    done = run_pytest(
        test_it="""
import pytest

@pytest.mark.parametrize("_", range(3))
def test_it(scheduled_events, _):
    assert scheduled_events.events == ()
    event = scheduled_events.vm("web-0").reboot()
    scheduled_events.clock.advance(minutes=15)
    event.assert_status("Started")
"""
    )

    assert "3 passed" in done.stdout, done.stdout


def test_failure_shows_documents_and_ledger(run_pytest: Run) -> None:
    done = run_pytest(
        test_it="""
def test_it(scheduled_events):
    event = scheduled_events.vm("web-0").reboot()
    assert event.event_status == "Started"
"""
    )

    assert done.returncode == 1
    assert "- scheduled events -" in done.stdout
    assert re.search(r"Document of virtual-machine/web-0, incarnation 1:\n", done.stdout)
    assert re.search(r"Ledger of [0-9A-F-]{36}, Reboot of web-0:\n.* scheduled by", done.stdout)


def test_failure_that_shows_everything_itself_is_not_told_twice(run_pytest: Run) -> None:
    done = run_pytest(
        "-rN",  # in continuous integration the summary has the whole message again
        test_it="""
def test_it(scheduled_events):
    scheduled_events.vm("web-0").reboot().assert_approved()
""",
    )

    assert done.returncode == 1
    assert "Reboot of web-0 was not approved; web-0 sent no request\n" in done.stdout
    assert done.stdout.count("Ledger of ") == 1, done.stdout
    assert "- scheduled events -" not in done.stdout


def test_session_has_the_fleet_that_the_suite_names(run_pytest: Run) -> None:
    done = run_pytest(
        conftest="""
import pytest

@pytest.fixture(scope="session")
def scheduled_events_fleet():
    machines = [{"name": f"web-{i}", "availability_set": "web"} for i in range(6)]
    return {"availability_set": [{"name": "web"}], "virtual_machine": machines}
""",
        test_it="""
import pytest

def test_fleet(scheduled_events):
    assert len(scheduled_events.vms) == 6

@pytest.mark.scheduled_events({"virtual_machine": [{"name": "solo"}]}, default_vm="solo")
def test_mark(scheduled_events):
    assert [vm.name for vm in scheduled_events.vms] == ["solo"]

def test_session_one(session_scheduled_events):
    session_scheduled_events.vm("web-0").reboot()

def test_session_two(session_scheduled_events):
    assert len(session_scheduled_events.events) == 1
""",
    )

    assert "4 passed" in done.stdout, done.stdout


def test_failing_test_that_closed_its_emulator_harms_nobody(run_pytest: Run) -> None:
    done = run_pytest(
        test_it="""
def test_one(scheduled_events):
    scheduled_events.close()
    assert 0

def test_two():
    pass
"""
    )

    assert "1 failed, 1 passed" in done.stdout, done.stdout


def test_fixture_of_the_same_name_harms_nobody(run_pytest: Run) -> None:
    done = run_pytest(
        test_it="""
import pytest

@pytest.fixture
def scheduled_events():
    return {}

def test_one(scheduled_events):
    assert 0

def test_two():
    pass
"""
    )

    assert "1 failed, 1 passed" in done.stdout, done.stdout


def test_failure_shows_what_the_emulator_of_the_session_knows(run_pytest: Run) -> None:
    done = run_pytest(
        test_it="""
def test_it(session_scheduled_events):
    session_scheduled_events.vm("web-0").reboot()
    assert 0
"""
    )

    assert "- session scheduled events -" in done.stdout
    assert "Scheduled Reboot of web-0" in done.stdout


def test_mark_may_name_the_fleet(run_pytest: Run) -> None:
    done = run_pytest(
        test_it="""
import pytest

@pytest.mark.scheduled_events(fleet={"virtual_machine": [{"name": "solo"}]})
def test_it(scheduled_events):
    assert [vm.name for vm in scheduled_events.vms] == ["solo"]
"""
    )

    assert "1 passed" in done.stdout, done.stdout


def test_wrong_mark_is_an_error_that_names_it(run_pytest: Run) -> None:
    done = run_pytest(
        test_it="""
import pytest

@pytest.mark.scheduled_events(default_vn="solo")
def test_it(scheduled_events):
    pass
"""
    )

    assert done.returncode == 1
    assert "default_vn" in done.stdout


def test_processes_of_xdist_do_not_meet(run_pytest: Run) -> None:
    done = run_pytest(
        "-n",
        "2",
        test_it="""
import json
import urllib.request

import pytest

@pytest.mark.parametrize("number", range(20))
def test_it(scheduled_events, number):
    web = scheduled_events.vm("web-0")
    event = web.reboot(description=str(number))
    url = f"{web.scheduled_events_url}?api-version=2020-07-01"
    with urllib.request.urlopen(
        urllib.request.Request(url, headers={"Metadata": "true"})
    ) as answer:
        (shown,) = json.load(answer)["Events"]
    assert (shown["EventId"], shown["Description"]) == (event.event_id, str(number))
""",
    )

    assert "20 passed" in done.stdout, done.stdout


def test_run_without_the_fixture_loads_nothing_of_the_server(run_pytest: Run) -> None:
    done = run_pytest(
        test_it="""
import sys

def test_it():
    assert "forewarn.pytest_plugin" in sys.modules
    assert not {"forewarn.testing", "sqlalchemy", "fastapi", "pydantic"} & set(sys.modules)
"""
    )

    assert "1 passed" in done.stdout, done.stdout


def test_fixture_loads_the_control_api_only_when_asked_for(run_pytest: Run) -> None:
    done = run_pytest(
        test_it="""
import sys

def test_it(scheduled_events):
    scheduled_events.vm("web-0").reboot()
    assert "fastapi" not in sys.modules
    assert scheduled_events.control_url
    assert "fastapi" in sys.modules
"""
    )

    assert "1 passed" in done.stdout, done.stdout


def test_mistakes_are_shown_where_they_were_made_and_nowhere_else(run_pytest: Run) -> None:
    tests = "".join(
        f"""
def test_{number}(emulator):
    {mistake}
"""
        for number, mistake in enumerate(MISTAKES)
    )
    done = run_pytest(
        "-rN",
        test_it=f"""
from datetime import timedelta

import pytest

from forewarn.testing import Emulator

@pytest.fixture
def emulator():
    with Emulator({{"virtual_machine": [{{"name": "web-0"}}, {{"name": "web-1"}}]}}) as running:
        yield running
{tests}
""",
    )

    failures = re.split(r"^_+ test_\d+ _+$", done.stdout, flags=re.MULTILINE)[1:]
    for failure, said in zip(failures, MISTAKES.values(), strict=True):
        assert said in failure, failure
        assert re.findall(r"^(\S+\.py):\d+: ", failure, re.MULTILINE) == ["test_it.py"], failure
