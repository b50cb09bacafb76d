import json
import logging
import sys
import threading
from pathlib import Path

import pytest
from tests.agent.conftest import make_event
from tests.e2e.conftest import wait_until

from forewarn.agent import processes
from forewarn.agent.decisions import RunHook
from forewarn.agent.hooks import Hook, describe, find_hooks, find_misfits, read_status, write_input
from forewarn.agent.performing import DryPerformer, HookEnded, RealPerformer, Result
from forewarn.agent.processes import Running
from forewarn.agent.vocabulary import Outcome, Phase
from forewarn.client import Client
from forewarn.protocol.vocabulary import EventSource

END_SECONDS = 20


def put(folder: Path, name: str, mode: int = 0o755) -> Path:
    path = folder / "scheduled.d" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("#!/bin/sh\n", encoding="ascii")
    path.chmod(mode)
    return path


def test_hooks_are_executables_in_the_order_of_their_names(tmp_path: Path) -> None:
    for name in ("20-b", "10-a", "9-c"):
        put(tmp_path, name)

    found = find_hooks(tmp_path, Phase.SCHEDULED, ("sync",), platform="linux")

    assert [hook.name for hook in found] == ["10-a", "20-b", "9-c", "/bin/sh -c sync"]
    assert found[0].command == (str(tmp_path / "scheduled.d" / "10-a"),)
    assert found[-1].command == ("/bin/sh", "-c", "sync")


def test_no_two_hooks_have_the_same_name(tmp_path: Path) -> None:
    put(tmp_path, "sync")

    found = find_hooks(tmp_path, Phase.SCHEDULED, ("sync", "sleep 1", "sync"), platform="linux")

    assert [hook.name for hook in found] == [
        "sync",
        "/bin/sh -c sync",
        "/bin/sh -c sleep 1",
        "2. /bin/sh -c sync",
    ]


def test_what_cannot_be_executed_is_a_hook_that_fails_and_pointed_out(tmp_path: Path) -> None:
    put(tmp_path, ".hidden", 0o644)
    put(tmp_path, "10-a~", 0o644)
    put(tmp_path, "30-fine")
    misfits = (
        tmp_path / "scheduled.d" / "10-folder",
        tmp_path / "scheduled.d" / "20-dangling",
        put(tmp_path, "readme.txt", 0o644),
    )
    misfits[0].mkdir()
    misfits[1].symlink_to(tmp_path / "nowhere")

    found = find_hooks(tmp_path, Phase.SCHEDULED, platform="linux")

    assert [(hook.name, hook.is_runnable) for hook in found] == [
        ("10-folder", False),
        ("20-dangling", False),
        ("30-fine", True),
        ("readme.txt", False),
    ]
    assert find_misfits(tmp_path, platform="linux") == misfits


def test_folder_that_cannot_be_listed_is_a_hook_that_fails(tmp_path: Path) -> None:
    folder = tmp_path / "scheduled.d"
    folder.touch()

    (found,) = find_hooks(tmp_path, Phase.SCHEDULED, platform="linux")

    assert (found.name, found.is_runnable) == ("scheduled.d", False)
    assert find_misfits(tmp_path, platform="linux") == (folder,)


def test_link_into_a_folder_that_may_not_be_entered_is_a_hook_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only root runs all tests, and root may enter every folder."""

    def refuse(_: Path) -> bool:
        raise PermissionError

    put(tmp_path, "10-link")
    monkeypatch.setattr(Path, "is_file", refuse)

    (found,) = find_hooks(tmp_path, Phase.SCHEDULED, platform="linux")

    assert not found.is_runnable


def test_folder_that_is_missing_has_no_hooks(tmp_path: Path) -> None:
    assert find_hooks(tmp_path / "nowhere", Phase.STARTED) == ()


def test_hooks_of_windows_are_known_by_the_end_of_their_names(tmp_path: Path) -> None:
    for name in ("1.ps1", "2.CMD", "3.exe", "4.txt"):
        put(tmp_path, name, 0o644)
    folder = tmp_path / "scheduled.d"

    first, second, third, misfit, inline = find_hooks(
        tmp_path, Phase.SCHEDULED, ('net stop "World Wide Web"',), platform="win32"
    )

    assert first.command[0] == "powershell.exe"
    assert first.command[-1] == str(folder / "1.ps1")
    assert second.command == (str(folder / "2.CMD"),)
    assert third.command == (str(folder / "3.exe"),)
    assert not misfit.is_runnable
    assert inline.command == 'cmd.exe /d /s /c "net stop "World Wide Web""'
    assert find_misfits(tmp_path, platform="win32") == (folder / "4.txt",)


def test_event_is_told_in_variables_and_as_json() -> None:
    event = make_event(
        event_source=EventSource.PLATFORM,
        resources=("web-0", "web-1"),
        description="Host server is undergoing maintenance.",
        duration_in_seconds=9,
    )

    assert describe(event, Phase.SCHEDULED) == {
        "EVENT_ID": event.event_id,
        "EVENT_TYPE": "Reboot",
        "EVENT_STATUS": "Scheduled",
        "EVENT_SOURCE": "Platform",
        "EVENT_NOTBEFORE": "Mon, 04 Jan 2027 12:15:00 GMT",
        "EVENT_RESOURCES": "web-0 web-1",
        "EVENT_RESOURCETYPE": "VirtualMachine",
        "EVENT_DURATION": "9",
        "EVENT_DESCRIPTION": "Host server is undergoing maintenance.",
        "EVENT_PHASE": "scheduled",
    }
    assert json.loads(write_input(event)) == {
        "EventId": event.event_id,
        "EventStatus": "Scheduled",
        "EventType": "Reboot",
        "ResourceType": "VirtualMachine",
        "Resources": ["web-0", "web-1"],
        "NotBefore": "Mon, 04 Jan 2027 12:15:00 GMT",
        "Description": "Host server is undergoing maintenance.",
        "EventSource": "Platform",
        "DurationInSeconds": 9,
    }


def test_what_is_not_known_is_empty_or_minus_one() -> None:
    told = describe(make_event(not_before=None), Phase.STARTED)

    assert (told["EVENT_NOTBEFORE"], told["EVENT_SOURCE"], told["EVENT_DURATION"]) == ("", "", "-1")


def test_what_no_environment_can_hold_is_left_out() -> None:
    told = describe(make_event(description="a\0b\ud800c"), Phase.STARTED)

    assert told["EVENT_DESCRIPTION"] == "ab?c"


@pytest.mark.parametrize(
    ("status", "outcome"),
    [(0, Outcome.READY), (75, Outcome.NOT_YET), (1, Outcome.FAILED), (-9, Outcome.FAILED)],
)
def test_exit_status_says_whether_it_is_ready(status: int, outcome: Outcome) -> None:
    assert read_status(status) is outcome


class Watched:
    """A hook written in Python that runs, and what came of it."""

    def __init__(self, code: str) -> None:
        self.ended = threading.Event()
        self.status: int | None = None
        command = (sys.executable, "-c", code)
        self.run = Running(
            Hook(name="hook", command=command),
            variables={"WORD": "variable"},
            standard_input=b"input",
            on_exit=self._end,
        )

    def _end(self, status: int) -> None:
        self.status = status
        self.ended.set()

    def wait(self) -> int | None:
        assert self.ended.wait(END_SECONDS), "the hook has not ended"
        return self.status


def test_hook_is_given_variables_and_input_and_its_output_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "forewarn.agent.hook")

    hook = Watched(
        "import os, sys; print(os.environ['WORD'], sys.stdin.read());"
        "print('trouble', file=sys.stderr); sys.exit(7)"
    )

    assert hook.wait() == 7
    messages = [record.getMessage() for record in caplog.records]
    assert sorted(messages) == [
        "hook_output hook='hook' trouble",
        "hook_output hook='hook' variable input",
    ]


def test_hook_that_leaves_something_behind_has_ended_all_the_same() -> None:
    hook = Watched(
        "import subprocess, sys; subprocess.Popen([sys.executable, '-c', 'input()'],"
        " stdin=subprocess.PIPE)"
    )

    assert hook.wait() == 0


def test_hook_is_ended_with_its_children(tmp_path: Path) -> None:
    child = f"import time; time.sleep(2); open({str(tmp_path / 'alive')!r}, 'w')"
    hook = Watched(f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])")

    hook.run.terminate()

    assert hook.wait() == -15
    assert not threading.Event().wait(2.5)
    assert not (tmp_path / "alive").exists()


def test_children_that_do_not_end_when_asked_are_killed_before_the_hook_counts_as_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "GRACE_SECONDS", 0.5)
    ready = tmp_path / "ready"
    child = (
        "import os, signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
        f"open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid()));"
        f"open({str(ready)!r}, 'w'); time.sleep(60)"
    )
    hook = Watched(f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])")
    wait_until(ready.exists, "the child has not begun", END_SECONDS)
    pid = int((tmp_path / "pid").read_text(encoding="ascii"))

    hook.run.terminate()

    assert hook.wait() == -15
    wait_until(lambda: not is_running(pid), "the child is still there", END_SECONDS / 10)


def is_running(pid: int) -> bool:
    """Tell whether there is such a process, and not only what is left of it."""
    try:
        return " Z " not in Path(f"/proc/{pid}/stat").read_text(encoding="ascii")
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_hook_that_does_not_end_when_asked_is_killed(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    hook = Watched(
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
        f"open({str(ready)!r}, 'w'); time.sleep(60)"
    )
    for _ in range(END_SECONDS * 50):
        if ready.exists():
            break
        threading.Event().wait(0.02)

    hook.run.terminate()
    assert not hook.ended.wait(0.3)
    hook.run.kill()

    assert hook.wait() == -9


def try_to_run(hook: Hook, *, is_dry: bool) -> Outcome:
    """Return what comes of a hook that ends before it begins."""
    results: list[Result] = []
    real = RealPerformer(lambda: Client("127.0.0.1:9"), {}, results.append)
    performer = DryPerformer(results.append) if is_dry else real
    performer.run_hook(make_event(), RunHook(phase=Phase.STARTED, hook=hook, seconds=1))
    (result,) = results
    assert isinstance(result, HookEnded)
    return result.outcome


def test_hook_that_cannot_be_started_has_failed(caplog: pytest.LogCaptureFixture) -> None:
    hook = Hook(name="missing", command=("/nowhere/missing",))

    assert try_to_run(hook, is_dry=False) is Outcome.FAILED
    assert "hook_unstartable" in caplog.text


@pytest.mark.parametrize("is_dry", [True, False])
def test_what_is_not_runnable_fails(tmp_path: Path, is_dry: bool) -> None:  # noqa: FBT001
    put(tmp_path, "1-text", 0o644)
    (tmp_path / "scheduled.d" / "2-folder").mkdir()
    (tmp_path / "scheduled.d" / "3-dangling").symlink_to(tmp_path / "nowhere")

    for hook in find_hooks(tmp_path, Phase.SCHEDULED):
        assert try_to_run(hook, is_dry=is_dry) is Outcome.FAILED


def test_dry_performer_starts_nothing_and_is_pleased() -> None:
    hook = Hook(name="missing", command=("/nowhere/missing",))

    assert try_to_run(hook, is_dry=True) is Outcome.READY
