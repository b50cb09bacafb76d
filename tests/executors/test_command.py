"""Scripts: what they are told, what is made of their end, and that each is started once."""

import json
import os
import signal
import threading
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from tests.executors.conftest import (
    EVENT,
    KEY,
    ORDER,
    OTHER,
    Grant,
    Withdrawn,
    begin,
    begin_when_there_is_a_place,
    is_over,
    log_in,
    make_command,
    order_for,
    run_and_be_killed,
    script,
    wait_for,
    wait_until,
)

from forewarn.domain.impact import Impact, ImpactStatus
from forewarn.domain.names import VmName
from forewarn.executors.command import SCRIPTS, Command
from forewarn.executors.processes import ProcessRunner
from forewarn.executors.task_input import LONGEST, Selection, TaskInput
from forewarn.ports.store import StoreUnavailableError
from forewarn.protocol.vocabulary import EventType

# A server that begins one impact and is then killed, as it says itself.
SERVER = """
import os, signal, sys
from pathlib import Path
from tests.executors.conftest import KEY, begin, log_in, make_command, wait_until
from forewarn.executors.command import Command
folder, script, moment = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
if moment == "between":
    log_in(folder).claim(KEY, {"executor": "command", "command": [script]})
else:
    begin(make_command(folder, Command(run=(script,))))
    wait_until((folder / "runs").exists, "the script does not run")
os.kill(os.getpid(), signal.SIGKILL)
"""


def run(folder: Path, text: str, timeout: timedelta = LONGEST) -> Impact:
    """Begin, and return how it ended."""
    command = Command(run=(str(script(folder, text)),), timeout=timeout)
    executor = make_command(folder, command)
    begin(executor, order_for(epoch=7))
    return wait_for(executor, is_over)


def make_continuing(folder: Path) -> ProcessRunner[Command]:
    """Return a runner whose program continues what a lost process has begun; one was lost."""
    runner = make_command(folder)
    runner.program = replace(SCRIPTS, has_successors=True)
    os.close(runner.log.claim(KEY, {"executor": SCRIPTS.name}) or 0)
    return runner


def kill_server(folder: Path, text: str, moment: str) -> None:
    """Have a server begin and be killed."""
    run_and_be_killed(SERVER, folder, script(folder, text), moment)


def test_script_is_told_about_the_event(tmp_path: Path) -> None:
    impact = run(tmp_path, f"env > {tmp_path}/env; cat > {tmp_path}/stdin")

    assert impact == Impact(status=ImpactStatus.DONE)
    lines = (tmp_path / "env").read_text(encoding="utf-8").splitlines()
    assert {line for line in lines if line.startswith("EVENT_")} == {
        "EVENT_ID=602D9444-D2CD-49C7-8624-8643E7171297",
        "EVENT_TYPE=Reboot",
        "EVENT_STATUS=Started",
        "EVENT_SOURCE=Platform",
        "EVENT_RESOURCETYPE=VirtualMachine",
        "EVENT_RESOURCES=web-0 web-1",
        "EVENT_NOTBEFORE=Mon, 05 Jan 2026 08:00:00 GMT",
        "EVENT_DURATION=600",
        "EVENT_DESCRIPTION=Kernel 6.12 für alle",
        "EVENT_VM=web-0",
        "EVENT_HOST=kvm-0",
        "EVENT_EPOCH=7",
    }
    told = json.loads((tmp_path / "stdin").read_text(encoding="utf-8"))
    assert (told["event_id"], told["vm"], told["host"], told["epoch"]) == (*KEY, "kvm-0", 7)
    assert (told["resources"], told["event_status"]) == (["web-0", "web-1"], "Started")


def test_description_that_no_environment_can_have_is_made_to_fit(tmp_path: Path) -> None:
    path = script(tmp_path, f'printf %s "$EVENT_DESCRIPTION" > {tmp_path}/said')
    executor = make_command(tmp_path, Command(run=(str(path),)))

    begin(executor, order_for(event=replace(EVENT, description="a\0b\ud800c")))

    assert wait_for(executor, is_over).status is ImpactStatus.DONE
    assert (tmp_path / "said").read_text(encoding="utf-8") == "ab?c"


def test_words_of_a_command_are_not_read_by_a_shell(tmp_path: Path) -> None:
    path = script(tmp_path, f'printf "%s\\n" "$@" > {tmp_path}/words')
    words = ("two words", "$(id)", "; exit 1", "*")
    executor = make_command(tmp_path, Command(run=(str(path), *words)))

    begin(executor)

    assert wait_for(executor, is_over).status is ImpactStatus.DONE
    assert (tmp_path / "words").read_text(encoding="utf-8").splitlines() == list(words)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("echo draining; echo 'no route to host' >&2; exit 3", "exit code 3: no route to host"),
        ("exit 1", "exit code 1"),
        ("echo 'all well'; exit 1", "exit code 1: all well"),
        ("printf 'a\\033[2Jb\\033(B\\n\\n  \\n'; exit 9", "exit code 9: ab"),
        ("head -c 9999 /dev/zero | tr '\\0' x; exit 1", f"exit code 1: {'x' * 200}"),
        ("printf '\\377\\n'; exit 1", "exit code 1: \ufffd"),
        ("kill -9 $$", "ended by signal 9"),
    ],
)
def test_script_that_fails_says_why_in_its_last_line(
    tmp_path: Path, text: str, reason: str
) -> None:
    impact = run(tmp_path, text)

    assert impact == Impact(status=ImpactStatus.FAILED, reason=reason)


def test_script_that_claims_to_have_failed_and_ends_with_0_is_done(tmp_path: Path) -> None:
    impact = run(tmp_path, 'echo \'failed: {"status": "failed"\'')

    assert impact.status is ImpactStatus.DONE


@pytest.mark.parametrize(
    ("text", "host", "reason"),
    [
        ("echo moved; echo host=kvm-2", "kvm-2", ""),
        ("echo 'disk lost'; echo host=kvm-2; exit 3", "kvm-2", "exit code 3: disk lost"),
        ("echo host=kvm-2; echo 'disk lost'; exit 3", None, "exit code 3: disk lost"),
        ("echo host=kvm-2; echo 'host=kvm-3 is full'", None, ""),
    ],
)
def test_last_line_may_say_on_which_host_the_machine_is(
    tmp_path: Path, text: str, host: str | None, reason: str
) -> None:
    impact = run(tmp_path, text)

    assert (impact.moved_to, impact.reason) == (host, reason)


@pytest.mark.parametrize("host", ["", "../kvm", "kvm!2"])
def test_script_that_names_a_host_that_cannot_be_has_failed(tmp_path: Path, host: str) -> None:
    impact = run(tmp_path, f"echo 'host={host}'")

    assert impact.status is ImpactStatus.FAILED
    assert impact.reason == (f"it reported the host {host!r}, which is not a valid host name")


def test_last_line_is_the_progress(tmp_path: Path) -> None:
    path = script(
        tmp_path,
        f"echo one; echo 'copying 40 %'; while [ ! -e {tmp_path}/end ]; do sleep 0.02; done",
    )
    executor = make_command(tmp_path, Command(run=(str(path),)))

    begin(executor)

    running = wait_for(executor, lambda impact: bool(impact.reason))
    assert (running.status, running.reason) == (ImpactStatus.RUNNING, "copying 40 %")
    assert running.ask_again_at is not None
    assert running.ask_again_at.microsecond == 0, "all that run are asked in one turn"
    (tmp_path / "end").touch()
    assert wait_for(executor, is_over).status is ImpactStatus.DONE


def test_script_that_hangs_is_stopped_with_its_children(tmp_path: Path) -> None:
    text = f"echo waiting; sleep 300 & echo $! > {tmp_path}/child; wait"

    impact = run(tmp_path, text, timeout=timedelta(seconds=1))

    assert impact.status is ImpactStatus.FAILED
    assert impact.reason == "it did not end within 1s and was stopped: waiting"
    child = int((tmp_path / "child").read_text())
    wait_until(lambda: not is_alive(child), "the child of the script is still there")


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def test_program_that_is_gone_fails(tmp_path: Path) -> None:
    executor = make_command(tmp_path, Command(run=(str(tmp_path / "nothing"),)))

    begin(executor)

    reason = "it could not be started: No such file or directory"
    assert wait_for(executor, is_over) == Impact(status=ImpactStatus.FAILED, reason=reason)


def test_first_command_that_fits_type_and_host_is_run(tmp_path: Path) -> None:
    path = str(script(tmp_path, f'echo "$EVENT_VM $1" >> {tmp_path}/runs'))
    executor = make_command(
        tmp_path,
        Command(run=(path, "freeze"), selection=Selection(event_types=(EventType.FREEZE,))),
        Command(run=(path, "first"), selection=Selection(hosts=("KVM-0", "other"))),
        Command(run=(path, "rest"), selection=Selection(hosts=("kvm-*",))),
    )

    for order in (ORDER, OTHER):
        begin(executor, order)
        wait_for(executor, is_over, order)

    assert (tmp_path / "runs").read_text() == "web-0 first\nweb-1 rest\n"


def test_command_that_is_gone_when_its_turn_comes_fails(tmp_path: Path) -> None:
    executor, permit = make_command(tmp_path), Grant()

    executor.begin(ORDER, permit)

    reason = "the executor file has no command for a Reboot on host kvm-0"
    assert wait_for(executor, is_over) == Impact(status=ImpactStatus.FAILED, reason=reason)
    assert permit.asked == 0, "nothing is begun"


def test_script_survives_a_server_that_is_killed(tmp_path: Path) -> None:
    text = f"echo run >> {tmp_path}/runs; while [ ! -e {tmp_path}/end ]; do sleep 0.02; done"
    kill_server(tmp_path, text, "after")
    executor = make_command(tmp_path, Command(run=(str(tmp_path / "script"),)))

    assert executor.inquire(ORDER).status is ImpactStatus.RUNNING
    begin(executor)
    (tmp_path / "end").touch()

    assert wait_for(executor, is_over).status is ImpactStatus.DONE
    assert (tmp_path / "runs").read_text() == "run\n"


def test_script_of_a_server_that_was_killed_before_starting_it_is_never_run(
    tmp_path: Path,
) -> None:
    kill_server(tmp_path, f"echo $EVENT_VM >> {tmp_path}/runs", "between")
    executor = make_command(tmp_path, Command(run=(str(tmp_path / "script"),)))

    impact = executor.inquire(ORDER)
    begin(executor)

    assert impact.status is ImpactStatus.UNKNOWN
    assert impact.reason.startswith("it was begun, but the process running it stopped")
    assert impact.ask_again_at is None, "nothing will be known by asking"
    assert executor.inquire(ORDER) == impact
    begin(executor, OTHER)  # so there was time enough for the first
    wait_for(executor, is_over, OTHER)
    assert runs(tmp_path) == {"web-1"}


def test_only_so_many_scripts_run_at_once_and_the_others_wait_for_a_place(tmp_path: Path) -> None:
    text = f"echo $EVENT_VM >> {tmp_path}/runs; while [ ! -e {tmp_path}/end ]; do sleep 0.02; done"
    executor = make_command(tmp_path, Command(run=(str(script(tmp_path, text)),)), places=2)
    orders = numbered(5)

    said = [begin(executor, order) for order in orders]
    wait_until(lambda: runs(tmp_path) == {"web-0", "web-1"}, "two scripts do not run")
    again = [begin(executor, order) for order in orders]

    waiting = Impact(status=ImpactStatus.NOT_BEGUN, reason="it is waiting: at most 2 run at once")
    assert said == [None, None, waiting, waiting, waiting]
    assert [each.status for each in again[:2] if each] == [ImpactStatus.RUNNING] * 2
    assert again[2:] == [waiting] * 3
    assert not log_in(tmp_path).has(orders[2].key), "it is not begun"
    (tmp_path / "end").touch()
    for order in orders[2:4]:
        begin_when_there_is_a_place(executor, order)
        assert wait_for(executor, is_over, order).status is ImpactStatus.DONE
    assert runs(tmp_path) == {f"web-{number}" for number in range(4)}, "the last was canceled"
    assert (tmp_path / "runs").read_text().count("web") == 4


def numbered(number: int) -> list[TaskInput]:
    """Return orders for virtual machines without a host."""
    return [replace(order_for(VmName(f"web-{each}")), host=None) for each in range(number)]


def until_file(path: Path) -> str:
    """Return what a script waits with until *path* is there, for half a minute at most."""
    return f"for i in $(seq 1500); do [ -e {path} ] && break; sleep 0.02; done"


def runs(folder: Path) -> set[str]:
    path = folder / "runs"
    return set(path.read_text().split()) if path.exists() else set()


def test_many_are_begun_while_the_first_still_run(tmp_path: Path) -> None:
    text = f"while [ ! -e {tmp_path}/end ]; do sleep 0.02; done"
    executor = make_command(tmp_path, Command(run=(str(script(tmp_path, text)),)), places=4)

    said = [begin(executor, order) for order in numbered(2_000)]

    assert said[:4] == [None] * 4
    assert {each.status for each in said[4:] if each} == {ImpactStatus.NOT_BEGUN}
    (tmp_path / "end").touch()
    executor.close()


def test_order_that_cannot_be_written_down_is_told_and_can_be_begun_again(tmp_path: Path) -> None:
    (tmp_path / "tasks").write_text("no directory", encoding="utf-8")
    executor, permit = make_command(tmp_path, Command(run=("/bin/true",)), places=1), Grant()

    executor.begin(ORDER, permit)
    with pytest.raises(OSError, match="tasks"):
        wait_for(executor, is_over)
    (tmp_path / "tasks").unlink()

    assert permit.asked == 0
    assert executor.inquire(ORDER).status is ImpactStatus.NOT_BEGUN
    begin_when_there_is_a_place(executor)
    assert wait_for(executor, is_over).status is ImpactStatus.DONE


def test_permit_that_came_late_is_looked_at_once_more(tmp_path: Path) -> None:
    executor = make_command(tmp_path, Command(run=("/bin/true",)))
    executor.permit_seconds = 0.0

    executor.begin(ORDER, Withdrawn())
    executor.close()

    assert executor.inquire(ORDER).status is ImpactStatus.NOT_BEGUN
    assert begin(executor) is None
    assert wait_for(executor, is_over).status is ImpactStatus.DONE


def test_permit_is_looked_at_again_if_the_disk_was_slow_to_remember_the_begin(
    tmp_path: Path,
) -> None:
    runs = tmp_path / "runs"
    executor = make_command(tmp_path, Command(run=("/bin/touch", str(runs))))
    executor.permit_seconds = 0.0
    permit = Grant(is_valid_for=1)

    executor.begin(ORDER, permit)
    executor.close()

    assert executor.inquire(ORDER).status is ImpactStatus.FAILED
    assert begin(executor) == executor.inquire(ORDER)
    assert not runs.exists()


def test_nothing_starts_or_stays_open_if_nobody_can_be_asked_whether_it_still_may(
    tmp_path: Path,
) -> None:
    """A claim that stays open counts as running, for as long as the server lives."""
    executor = make_command(tmp_path, Command(run=("/bin/touch", str(tmp_path / "runs"))))
    executor.permit_seconds = 0.0

    executor.begin(ORDER, Unanswered())
    executor.close()

    assert executor.inquire(ORDER).status is ImpactStatus.FAILED
    assert not executor.log.is_attended(ORDER.key)
    assert not (tmp_path / "runs").exists()


class Unanswered(Grant):
    """A permit that is valid until the database goes away."""

    def is_valid(self) -> bool:
        if super().is_valid() and self.looks == 1:
            return True
        raise StoreUnavailableError("the database cannot be read now")


def test_closing_waits_for_what_is_being_started_and_begins_nothing_more(tmp_path: Path) -> None:
    path = script(tmp_path, f"{until_file(tmp_path / 'end')}; echo $EVENT_VM >> {tmp_path}/runs")
    executor = make_command(tmp_path, Command(run=(str(path),)), places=1)
    for order in (ORDER, OTHER):
        begin(executor, order)

    executor.close()

    following = make_command(tmp_path, Command(run=(str(path),)))
    assert following.inquire(ORDER).status is ImpactStatus.RUNNING, "it was begun"
    assert following.inquire(OTHER).status is ImpactStatus.NOT_BEGUN
    (tmp_path / "end").touch()
    assert wait_for(following, is_over).status is ImpactStatus.DONE
    assert runs(tmp_path) == {"web-0"}


def test_script_whose_attendant_is_killed_has_an_end_that_nobody_knows(tmp_path: Path) -> None:
    path = script(tmp_path, f"echo $PPID > {tmp_path}/draft; mv {tmp_path}/draft {tmp_path}/pid")
    path.write_text(f"{path.read_text()}\n{until_file(tmp_path / 'end')}\n")
    executor = make_command(tmp_path, Command(run=(str(path),)))
    begin(executor)
    wait_until((tmp_path / "pid").exists, "the script does not run")

    os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)
    (tmp_path / "end").touch()

    impact = wait_for(executor, lambda impact: impact.status is not ImpactStatus.RUNNING)
    assert impact.status is ImpactStatus.UNKNOWN


def test_many_leaders_at_once_start_one_script(tmp_path: Path) -> None:
    path = str(script(tmp_path, f"echo run >> {tmp_path}/runs"))
    ready = threading.Barrier(16)

    def lead(epoch: int) -> None:
        executor = make_command(tmp_path, Command(run=(path,)))
        ready.wait(60)
        begin(executor, order_for(epoch=epoch))

    leaders = [threading.Thread(target=lead, args=(epoch,)) for epoch in range(16)]
    for leader in leaders:
        leader.start()
    for leader in leaders:
        leader.join(60)

    wait_for(make_command(tmp_path), is_over)
    assert (tmp_path / "runs").read_text() == "run\n"
    left = {"web-0.intended", "web-0.begun", "web-0.ended", "web-0.output"}
    wait_until(lambda: files(tmp_path / "tasks") == left, "drafts are left")


def files(folder: Path) -> set[str]:
    return {path.name for path in folder.rglob("*") if path.suffix}


def test_what_another_executor_began_is_not_begun_again(tmp_path: Path) -> None:
    file = log_in(tmp_path).claim(KEY, {"executor": "webhook"})
    assert file is not None
    os.close(file)

    impact = make_command(tmp_path, Command(run=("/bin/true",))).inquire(ORDER)

    assert impact.status is ImpactStatus.UNKNOWN
    assert (
        impact.reason == "it was begun by the executor 'webhook', which this server does not have"
    )


def test_records_are_for_the_server_only(tmp_path: Path) -> None:
    run(tmp_path, "echo hello")

    folder = tmp_path / "tasks"
    for path in (folder, *folder.rglob("*")):
        expected = 0o700 if path.is_dir() else 0o600
        assert path.stat().st_mode & 0o777 == expected, path


def test_ended_script_leaves_no_process(tmp_path: Path) -> None:
    def children() -> set[str]:
        running = Path(f"/proc/self/task/{os.getpid()}/children").read_text(encoding="ascii")
        return set(running.split())

    before = children()  # of other tests

    run(tmp_path, "exit 0")

    wait_until(lambda: children() <= before, "a process is left")


def test_lost_process_gets_a_successor_unless_an_operator_has_settled_the_task(
    tmp_path: Path,
) -> None:
    runner = make_continuing(tmp_path)

    settled = runner.inquire(replace(ORDER, is_settled=True))
    continued = runner.inquire(ORDER)
    runner.close()

    assert settled.is_stuck
    assert settled.reason.startswith("it was begun, but the process running it stopped")
    assert continued.status is ImpactStatus.RUNNING
