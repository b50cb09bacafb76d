"""Hooks for programs that cannot be had here: stand-ins answer, and note what they were asked."""

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.e2e.conftest import wait_until
from tests.hooks.conftest import (
    EVENT_ID,
    FAILED,
    NOT_YET,
    OTHER_ID,
    PATH,
    READY,
    STAND_INS,
    Installed,
    InstalledMaker,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A hook, its settings, and the commands that do something."""

    settings: dict[str, str]
    take_out: str
    put_back: str


SUBJECTS = {
    "kubernetes": Subject(
        settings={"NODE": "node-0"},
        take_out="kubectl cordon node-0",
        put_back="kubectl uncordon node-0",
    ),
    "nomad": Subject(
        settings={},
        take_out="nomad node drain -enable -detach -yes -deadline 1h -self",
        put_back="nomad node drain -disable -yes -self",
    ),
}
SECONDS = 45.0


@dataclass(frozen=True, slots=True)
class StandIn:
    """A hook, and the folder through which its stand-in is told how things are."""

    hook: Installed
    folder: Path

    def set(self, *facts: str) -> None:
        for fact in facts:
            (self.folder / fact).touch()

    def unset(self, fact: str) -> None:
        (self.folder / fact).unlink()

    @property
    def is_out(self) -> bool:
        return (self.folder / "out").exists()

    @property
    def calls(self) -> list[str]:
        try:
            return (self.folder / "calls").read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return []


StandInMaker = Callable[..., StandIn]


@pytest.fixture
def stand_in(tmp_path: Path) -> StandInMaker:
    def make(name: str, **settings: str) -> StandIn:
        folder = tmp_path / "stand-in"
        folder.mkdir()
        hook = Installed(
            name=name,
            folder=tmp_path,
            settings=settings or SUBJECTS[name].settings,
            path=f"{STAND_INS}:{PATH}",
            environment={"STAND_IN": str(folder)},
        )
        return StandIn(hook, folder)

    return make


each = pytest.mark.parametrize("name", SUBJECTS)


@each
@pytest.mark.parametrize("ending", ["recovered", "canceled"])
def test_what_was_taken_out_is_put_back(stand_in: StandInMaker, name: str, ending: str) -> None:
    it = stand_in(name)

    assert it.hook.run("scheduled").status == READY
    assert it.is_out
    assert it.hook.run(ending).status == READY

    assert not it.is_out
    doing = [
        call for call in it.calls if call in (SUBJECTS[name].take_out, SUBJECTS[name].put_back)
    ]
    assert doing == [SUBJECTS[name].take_out, SUBJECTS[name].put_back]


@each
def test_hook_that_runs_twice_acts_once(stand_in: StandInMaker, name: str) -> None:
    it = stand_in(name)

    for phase in ("scheduled", "scheduled", "recovered", "recovered"):
        assert it.hook.run(phase).status == READY

    assert it.calls.count(SUBJECTS[name].take_out) == 1
    assert it.calls.count(SUBJECTS[name].put_back) == 1


@each
def test_hook_says_not_yet_while_something_is_left(stand_in: StandInMaker, name: str) -> None:
    it = stand_in(name)
    it.set("busy")

    assert it.hook.run("scheduled").status == NOT_YET
    assert it.is_out
    it.unset("busy")

    assert it.hook.run("scheduled").status == READY
    assert it.calls.count(SUBJECTS[name].take_out) == 1


@each
def test_what_somebody_else_took_out_stays_out(stand_in: StandInMaker, name: str) -> None:
    it = stand_in(name)
    it.set("out")

    assert it.hook.run("scheduled").status == READY
    assert it.hook.run("recovered").status == READY

    assert it.is_out
    assert SUBJECTS[name].put_back not in it.calls


@each
def test_what_somebody_else_put_back_is_not_put_back_again(
    stand_in: StandInMaker, name: str
) -> None:
    it = stand_in(name)
    it.hook.run("scheduled")
    it.unset("out")

    assert it.hook.run("recovered").status == READY

    assert SUBJECTS[name].put_back not in it.calls


@each
def test_what_two_events_need_out_is_put_back_after_the_second(
    stand_in: StandInMaker, name: str
) -> None:
    it = stand_in(name)
    it.hook.run("scheduled", EVENT_ID)
    it.hook.run("scheduled", OTHER_ID)

    first = it.hook.run("recovered", EVENT_ID)
    assert OTHER_ID in first.said
    assert (first.status, it.is_out) == (READY, True)

    assert it.hook.run("canceled", OTHER_ID).status == READY
    assert not it.is_out


def test_hooks_of_two_events_do_not_run_at_once(stand_in: StandInMaker) -> None:
    it = stand_in("kubernetes")
    it.hook.install("scheduled", it.hook.folder / "hooks.d")
    it.hook.run("scheduled", EVENT_ID)
    calls = len(it.calls)
    it.set("hold")

    with ThreadPoolExecutor() as pool:
        over = pool.submit(it.hook.run, "recovered", EVENT_ID)
        wait_until(lambda: len(it.calls) > calls, "nothing is put back", SECONDS)
        ahead = pool.submit(it.hook.run, "scheduled", OTHER_ID)
        wait_until(lambda: is_waiting_for_lock(it), "the other does not wait", SECONDS)
        it.unset("hold")

    assert over.result().status == ahead.result().status == READY
    assert it.is_out
    subject = SUBJECTS["kubernetes"]
    doing = [call for call in it.calls if call in (subject.take_out, subject.put_back)]
    assert doing == [subject.take_out, subject.put_back, subject.take_out]


def is_waiting_for_lock(it: StandIn) -> bool:
    node = (it.hook.folder / "state" / it.hook.name / "lock").stat().st_ino
    waiting = re.compile(rf"^\d+: -> FLOCK .*:{node} ", re.MULTILINE)
    return bool(waiting.search(Path("/proc/locks").read_text(encoding="ascii")))


@each
def test_hook_fails_if_nobody_answers(stand_in: StandInMaker, name: str) -> None:
    it = stand_in(name)
    it.set("broken")

    ended = it.hook.run("scheduled")

    assert ended.status == FAILED
    assert "nobody answers" in ended.said


@each
def test_hook_fails_for_what_there_is_not(stand_in: StandInMaker, name: str) -> None:
    it = stand_in(name, NODE="other")

    assert it.hook.run("scheduled").status == FAILED


@each
def test_putting_back_is_tried_until_somebody_answers(stand_in: StandInMaker, name: str) -> None:
    """After a reboot the program is not up at once."""
    it = stand_in(name)
    it.hook.run("scheduled")
    it.set("broken")

    assert it.hook.run("recovered").status == NOT_YET
    assert it.hook.run("recovered").status == NOT_YET
    it.unset("broken")
    assert it.hook.run("recovered").status == READY

    assert not it.is_out


@each
@pytest.mark.parametrize("phase", ["started", "notify"])
def test_other_phases_do_nothing(stand_in: StandInMaker, name: str, phase: str) -> None:
    it = stand_in(name)

    assert it.hook.run(phase).status == READY

    assert it.calls == []


@pytest.mark.parametrize("event_id", ["", "../../etc/passwd", ".", "a b"])
def test_event_id_that_is_no_name_of_a_file_is_refused(
    stand_in: StandInMaker, event_id: str
) -> None:
    it = stand_in("nomad")

    assert it.hook.run("scheduled", event_id).status == FAILED

    assert it.calls == []


def test_missing_setting_is_named(install: InstalledMaker) -> None:
    hook = install("systemd-units")

    ended = hook.run("scheduled")

    assert ended.status == FAILED
    assert f"set UNITS in {hook.folder}/conf/systemd-units.conf" in ended.said
