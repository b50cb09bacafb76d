import contextlib
import errno
import json
import logging
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Generator
from pathlib import Path
from queue import SimpleQueue

import pytest
from tests.agent.conftest import ID, make_event
from tests.e2e.conftest import wait_until

from forewarn.agent import processes
from forewarn.agent.decisions import RunHook
from forewarn.agent.hooks import (
    Hook,
    HookFinder,
    describe,
    find_hooks,
    find_misfits,
    find_strays,
    read_status,
    write_input,
)
from forewarn.agent.performer import DryPerformer, HookEnded, RealPerformer, Result
from forewarn.agent.processes import HookProcess
from forewarn.agent.state import StateFile
from forewarn.agent.vocabulary import HookOutcome, HookPhase
from forewarn.client import Client
from forewarn.protocol.vocabulary import EventSource

END_SECONDS = 45


def put(folder: Path, name: str, mode: int = 0o755) -> Path:
    path = folder / "scheduled.d" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("#!/bin/sh\n", encoding="ascii")
    path.chmod(mode)
    return path


def test_hooks_are_executables_in_the_order_of_their_names(tmp_path: Path) -> None:
    for name in ("20-b", "10-a", "9-c"):
        put(tmp_path, name)

    found = find_hooks(tmp_path, HookPhase.SCHEDULED, ("sync",), platform="linux")

    assert [hook.name for hook in found] == ["10-a", "20-b", "9-c", "/bin/sh -c sync"]
    assert found[0].command == (str(tmp_path / "scheduled.d" / "10-a"),)
    assert found[-1].command == ("/bin/sh", "-c", "sync")


def test_no_two_hooks_have_the_same_name(tmp_path: Path) -> None:
    put(tmp_path, "sync")

    found = find_hooks(tmp_path, HookPhase.SCHEDULED, ("sync", "sleep 1", "sync"), platform="linux")

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

    found = find_hooks(tmp_path, HookPhase.SCHEDULED, platform="linux")

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

    (found,) = find_hooks(tmp_path, HookPhase.SCHEDULED, platform="linux")

    assert (found.name, found.is_runnable) == ("scheduled.d", False)
    assert find_misfits(tmp_path, platform="linux") == (folder,)


@pytest.mark.parametrize("name", ["hooks.d", "hooks.d/scheduled.d"])
def test_folder_that_is_a_link_to_nothing_is_a_hook_that_fails(tmp_path: Path, name: str) -> None:
    link = tmp_path / name
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(tmp_path / "nowhere")

    (found,) = find_hooks(tmp_path / "hooks.d", HookPhase.SCHEDULED, platform="linux")

    assert (found.name, found.is_runnable) == (link.name, False)
    assert find_misfits(tmp_path / "hooks.d", platform="linux") == (link,)


@pytest.mark.parametrize("name", ["hooks.d", "hooks.d/scheduled.d"])
def test_folder_that_was_there_and_is_gone_is_a_hook_that_fails_until_it_is_back(
    tmp_path: Path, name: str
) -> None:
    hooks = tmp_path / "hooks.d"
    hooks.mkdir()
    put(hooks, "10-a")
    finder = HookFinder(hooks, {HookPhase.SCHEDULED: ("sync",)}, StateFile(tmp_path))

    (tmp_path / name).rename(tmp_path / "aside")
    gone, *others = finder.find()[HookPhase.SCHEDULED]
    (tmp_path / "aside").rename(tmp_path / name)

    assert (gone.name, gone.is_runnable) == (Path(name).name, False)
    assert [hook.name for hook in others] == ["/bin/sh -c sync"]
    assert finder.find()[HookPhase.SCHEDULED][0].name == "10-a"
    assert finder.find()[HookPhase.STARTED] == ()


def test_folder_that_never_was_there_has_no_hooks(tmp_path: Path) -> None:
    finder = HookFinder(tmp_path / "hooks.d", {}, StateFile(tmp_path))

    assert set(finder.find().values()) == {()}
    assert finder.find_missing() == ()


@pytest.mark.parametrize("name", ["hooks.d", "hooks.d/scheduled.d"])
def test_folder_that_is_gone_when_the_agent_starts_is_a_hook_that_fails(
    tmp_path: Path, name: str
) -> None:
    hooks = tmp_path / "hooks.d"
    hooks.mkdir()
    put(hooks, "10-a")
    with StateFile(tmp_path / "state") as state:
        HookFinder(hooks, {}, state)
    (tmp_path / name).rename(tmp_path / "aside")

    finder = HookFinder(hooks, {}, StateFile(tmp_path / "state"))

    (gone,) = finder.find()[HookPhase.SCHEDULED]
    assert (gone.name, gone.is_runnable) == (Path(name).name, False)
    assert finder.find_missing()[0] == tmp_path / name


def test_folder_of_another_configuration_is_not_missed(tmp_path: Path) -> None:
    (tmp_path / "old.d").mkdir()
    with StateFile(tmp_path / "state") as state:
        HookFinder(tmp_path / "old.d", {}, state)
        (tmp_path / "old.d").rmdir()
        finder = HookFinder(tmp_path / "new.d", {}, state)

        assert finder.find_missing() == ()
        assert set(finder.find().values()) == {()}


def test_hooks_folder_that_is_a_file_is_a_hook_that_fails(tmp_path: Path) -> None:
    (tmp_path / "hooks.d").touch()

    (found,) = find_hooks(tmp_path / "hooks.d", HookPhase.SCHEDULED, platform="linux")

    assert not found.is_runnable


def test_what_is_beside_the_folders_of_the_phases_is_pointed_out(tmp_path: Path) -> None:
    put(tmp_path, "10-a")
    for name in ("10-stop", "schedule.d", ".git", "10-stop~"):
        (tmp_path / name).mkdir()

    assert find_strays(tmp_path) == (tmp_path / "10-stop", tmp_path / "schedule.d")
    assert find_strays(tmp_path / "nowhere") == ()


def test_link_into_a_folder_that_may_not_be_entered_is_a_hook_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only root runs all tests, and root may enter every folder."""

    def refuse(_: Path) -> bool:
        raise PermissionError

    put(tmp_path, "10-link")
    monkeypatch.setattr(Path, "is_file", refuse)

    (found,) = find_hooks(tmp_path, HookPhase.SCHEDULED, platform="linux")

    assert not found.is_runnable


def test_folder_that_is_missing_has_no_hooks(tmp_path: Path) -> None:
    assert find_hooks(tmp_path / "nowhere", HookPhase.STARTED) == ()


def test_hooks_of_windows_are_known_by_the_end_of_their_names(tmp_path: Path) -> None:
    for name in ("1.ps1", "2.CMD", "3.exe", "4.txt"):
        put(tmp_path, name, 0o644)
    folder = tmp_path / "scheduled.d"

    first, second, third, misfit, inline = find_hooks(
        tmp_path, HookPhase.SCHEDULED, ('net stop "World Wide Web"',), platform="win32"
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

    assert describe(event, HookPhase.SCHEDULED) == {
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
    told = describe(make_event(not_before=None), HookPhase.STARTED)

    assert (told["EVENT_NOTBEFORE"], told["EVENT_SOURCE"], told["EVENT_DURATION"]) == ("", "", "-1")


def test_what_no_environment_can_hold_is_left_out() -> None:
    event = make_event(description="a\0b\ud800c \u2013")

    assert describe(event, HookPhase.STARTED)["EVENT_DESCRIPTION"] == "ab?c \u2013"
    told = describe(event, HookPhase.STARTED, encoding="latin-1")
    assert told["EVENT_DESCRIPTION"] == "ab?c ?"


@pytest.mark.parametrize("word", ["web-0000", "\u00fc" * 50])
def test_what_is_too_long_for_an_environment_is_cut_between_words(word: str) -> None:
    names = (word,) * 20_000

    told = describe(make_event(resources=names), HookPhase.STARTED)["EVENT_RESOURCES"]

    assert 31_000 < len(told.encode()) <= 32_000
    assert set(told.split(" ")) == {word}


def test_one_long_word_is_cut_where_it_is_too_long() -> None:
    told = describe(make_event(description="\u20ac" * 50_000), HookPhase.STARTED)[
        "EVENT_DESCRIPTION"
    ]

    assert told == "\u20ac" * (32_000 // 3)


def test_hook_of_a_very_long_event_can_be_started() -> None:
    results: SimpleQueue[Result] = SimpleQueue()
    event = make_event(description="x" * 200_000)
    hook = Hook(name="count", command=("/bin/sh", "-c", "test $(wc -c) -gt 200000"))
    performer = RealPerformer(lambda: Client("127.0.0.1:9"), {}, results.put)

    performer.run_hook(event, RunHook(phase=HookPhase.STARTED, hook=hook, seconds=60))
    result = results.get(timeout=END_SECONDS)

    assert isinstance(result, HookEnded)
    assert result.outcome is HookOutcome.READY


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        (0, HookOutcome.READY),
        (75, HookOutcome.NOT_YET),
        (1, HookOutcome.FAILED),
        (-9, HookOutcome.FAILED),
    ],
)
def test_exit_status_says_whether_it_is_ready(status: int, outcome: HookOutcome) -> None:
    assert read_status(status) is outcome


class Watched:
    """A hook written in Python that runs, and what came of it."""

    def __init__(self, code: str, standard_input: bytes = b"input") -> None:
        self.ended = threading.Event()
        self.status: int | None = None
        command = (sys.executable, "-c", code)
        self.run = HookProcess(
            RunHook(phase=HookPhase.STARTED, hook=Hook(name="hook", command=command), seconds=60),
            event_id=ID,
            variables={"WORD": "variable"},
            standard_input=standard_input,
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
        f"hook_output event={ID} phase=started hook='hook' trouble",
        f"hook_output event={ID} phase=started hook='hook' variable input",
    ]


def test_lines_are_logged_one_by_one_and_long_ones_in_pieces(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO, "forewarn.agent.hook")
    monkeypatch.setattr(processes, "_LONGEST_LINE", 4)

    hook = Watched("print('a\\n\\nbcdefghij\\nlast', end='')")

    assert hook.wait() == 0
    told = [record.getMessage().partition("hook='hook' ")[2] for record in caplog.records]
    assert told[:2] == ["a", ""]
    assert "".join(told[2:]) == "bcdefghijlast"
    assert told[-1].endswith("last")
    assert max(map(len, told)) < 8


def test_output_without_end_does_not_fill_the_log(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO, "forewarn.agent.hook")
    monkeypatch.setattr(processes, "LARGEST_OUTPUT", 10_000)

    hook = Watched("for _ in range(1_000_000): print('again')")

    assert hook.wait() == 0
    *lines, last = [record.getMessage() for record in caplog.records]
    assert 10_000 <= 6 * len(lines) < 20_000
    assert last == f"hook_output_cut event={ID} phase=started hook='hook' bytes=10000"


def is_there(path: Path) -> Callable[[], bool]:
    return lambda: path.exists() and bool(path.read_bytes())


def test_input_that_fills_every_pipe_is_read_as_a_whole() -> None:
    assert Watched(
        "import sys; sys.exit(len(sys.stdin.buffer.read()) == 300_000)", b"x" * 300_000
    ).wait()


def test_hook_that_reads_nothing_of_a_long_input_can_be_ready() -> None:
    threads = threading.active_count()

    assert Watched("pass", b"x" * 300_000).wait() == 0
    wait_until(lambda: threading.active_count() == threads, "a thread is left", END_SECONDS)


def test_hook_needs_no_room_for_temporary_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/nowhere")

    assert Watched("pass").wait() == 0


LEAVING = (
    "import os, subprocess, sys; left = subprocess.Popen([sys.executable, '-c', {code!r}],"
    " stdin=subprocess.DEVNULL); print(left.pid, os.getpid(), file=open({file!r}, 'w'))"
)


@pytest.fixture
def left(tmp_path: Path) -> Generator[Path]:
    """The file for the number of a process that a hook leaves behind, and of the hook."""
    file, threads = tmp_path / "left", threading.active_count()
    yield file
    with contextlib.suppress(ProcessLookupError):
        os.kill(read_numbers(file)[0], signal.SIGKILL)
    wait_until(lambda: threading.active_count() <= threads, "a thread is left", END_SECONDS)


def read_numbers(file: Path) -> list[int]:
    return [int(number) for number in file.read_text(encoding="ascii").split()]


def test_hook_that_leaves_something_behind_has_ended_all_the_same(left: Path) -> None:
    hook = Watched(LEAVING.format(code="import time; time.sleep(60)", file=str(left)))

    assert hook.wait() == 0


def test_what_a_hook_leaves_behind_can_write_for_as_long_as_it_likes(
    left: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    code = "import time; time.sleep(1.5); print('I am well', flush=True); time.sleep(60)"

    hook = Watched(LEAVING.format(code=code, file=str(left)))

    assert hook.wait() == 0
    wait_until(lambda: "I am well" in caplog.text, "it was not heard", END_SECONDS)
    assert is_running(read_numbers(left)[0])


def test_hook_that_has_ended_cannot_be_ended_again(
    left: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor what has its number by then: for a while it is waited for its output alone."""
    monkeypatch.setattr(processes, "_OUTPUT_SECONDS", 3.0)
    hook = Watched(LEAVING.format(code="import time; time.sleep(60)", file=str(left)))
    wait_until(is_there(left), "it has not begun", END_SECONDS)
    background, own = read_numbers(left)
    wait_until(lambda: not Path(f"/proc/{own}").exists(), "it has not ended", END_SECONDS)
    assert not hook.ended.wait(0.1)

    assert not hook.run.terminate()
    hook.run.kill()

    assert hook.wait() == 0
    assert is_running(background)


def test_hook_is_ended_with_its_children(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    child = (
        f"import os, time; print(os.getpid(), file=open({str(file)!r}, 'w'), flush=True);"
        "time.sleep(60)"
    )
    hook = Watched(f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])")
    wait_until(is_there(file), "the child has not begun", END_SECONDS)
    pid = int(file.read_text(encoding="ascii"))

    assert hook.run.terminate()

    assert hook.wait() == -15
    wait_until(lambda: not is_running(pid), "the child is still there", END_SECONDS / 3)


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
    wait_until(lambda: not is_running(pid), "the child is still there", END_SECONDS / 3)


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


def try_to_run(hook: Hook, *, is_dry: bool) -> HookOutcome:
    """Return what comes of a hook that ends before it begins."""
    results: list[Result] = []
    real = RealPerformer(lambda: Client("127.0.0.1:9"), {}, results.append)
    performer = DryPerformer(results.append) if is_dry else real
    performer.run_hook(make_event(), RunHook(phase=HookPhase.STARTED, hook=hook, seconds=1))
    (result,) = results
    assert isinstance(result, HookEnded)
    return result.outcome


def test_hook_that_cannot_be_started_has_failed(caplog: pytest.LogCaptureFixture) -> None:
    hook = Hook(name="missing", command=("/nowhere/missing",))

    assert try_to_run(hook, is_dry=False) is HookOutcome.FAILED
    assert "hook_unstartable" in caplog.text


@pytest.mark.parametrize("command", [("/bin/sh", "-c", "a\0b"), ("/bin/sh", "-c", "\ud800")])
def test_hook_that_no_system_can_start_has_failed(command: tuple[str, ...]) -> None:
    assert try_to_run(Hook(name="odd", command=command), is_dry=False) is HookOutcome.FAILED


@pytest.mark.parametrize(
    "number", [errno.EAGAIN, errno.EMFILE, errno.ENOMEM, errno.ENOSPC, errno.ETXTBSY]
)
def test_hook_that_cannot_be_started_now_is_asked_again(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(subprocess, "Popen", refuse)
    hook = Hook(name="fine", command=("/bin/true",))

    assert try_to_run(hook, is_dry=False) is HookOutcome.NOT_YET


def test_hook_that_no_thread_can_look_after_is_ended_and_has_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    late = tmp_path / "late"
    hook = Hook(name="fine", command=("/bin/sh", "-c", f"sleep 1; touch {late}"))

    assert try_to_run(hook, is_dry=False) is HookOutcome.FAILED
    assert not threading.Event().wait(1.5)
    assert not late.exists()


@pytest.mark.parametrize("is_dry", [True, False])
def test_what_is_not_runnable_fails(tmp_path: Path, is_dry: bool) -> None:  # noqa: FBT001
    put(tmp_path, "1-text", 0o644)
    (tmp_path / "scheduled.d" / "2-folder").mkdir()
    (tmp_path / "scheduled.d" / "3-dangling").symlink_to(tmp_path / "nowhere")

    for hook in find_hooks(tmp_path, HookPhase.SCHEDULED):
        assert try_to_run(hook, is_dry=is_dry) is HookOutcome.FAILED


def test_dry_performer_starts_nothing_and_is_pleased() -> None:
    hook = Hook(name="missing", command=("/nowhere/missing",))

    assert try_to_run(hook, is_dry=True) is HookOutcome.READY
