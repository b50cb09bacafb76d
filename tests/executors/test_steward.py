"""What a steward does about a libvirt that refuses, is away or forgets, and a disk that is full."""

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.executors.conftest import NOW, wait_until
from tests.executors.test_libvirt_decisions import PLAN, SECOND, mark_of
from tests.needs import say_missing

from forewarn.clocks import SystemClock
from forewarn.domain.impact import ImpactStatus
from forewarn.executors.libvirt.decisions import End
from forewarn.executors.libvirt.marks import MarkPhase
from forewarn.executors.libvirt.plans import HostPlace, ImpactPlan
from forewarn.protocol.vocabulary import EventType

libvirt = pytest.importorskip("libvirt", reason=say_missing("libvirt-python"))
fake = pytest.importorskip("tests.executors.fake_libvirt")
stewards = pytest.importorskip("forewarn.executors.libvirt.steward")

RUNNING, PAUSED, OFF = 1, 3, 5
DONE = End(status=ImpactStatus.DONE)
FREEZE = replace(PLAN, event_type=EventType.FREEZE, duration=SECOND / 2, ephemeral=())
FREEZE = replace(FREEZE, here=HostPlace(host="kvm-0", uri="kvm0"), others=(), barred={})
MIGRATION = replace(
    FREEZE,
    migrate=True,
    connect_timeout=SECOND,
    others=(HostPlace(host="kvm-1", uri="kvm1"), HostPlace(host="kvm-2", uri="kvm2")),
)
LOCKED = "cannot acquire state change lock"


def attend(folder: Path, plan: ImpactPlan, **hosts: Any) -> Callable[[], End | None]:
    """Have a steward carry out *plan*, and return how to ask how it ended."""
    notes = stewards.StewardNotes(folder / "web-0.begun")
    steward = stewards.Steward(plan, notes, SystemClock().now, fake.connecting(**hosts))
    ends: list[End] = []
    threading.Thread(target=lambda: ends.append(steward.attend()), daemon=True).start()
    return lambda: ends[0] if ends else None


def end_of(folder: Path, plan: ImpactPlan, **hosts: Any) -> End:
    ended = attend(folder, plan, **hosts)
    wait_until(lambda: ended() is not None, "the steward does not end")
    end = ended()
    assert end is not None
    return end


def test_guest_is_resumed_although_nothing_can_be_written_down(tmp_path: Path) -> None:
    host = fake.FakeHost()
    guest = host.take()
    (tmp_path / "web-0.output").mkdir()

    assert end_of(tmp_path, FREEZE, kvm0=host) == DONE
    assert guest.power == RUNNING


def test_what_has_begun_is_remembered_when_the_records_are_gone(tmp_path: Path) -> None:
    notes = stewards.StewardNotes(tmp_path / "web-0.begun")

    notes.begin()
    (tmp_path / "web-0.acting").unlink()

    assert notes.has_begun


@pytest.mark.parametrize("kind", [RuntimeError, None])
def test_guest_is_resumed_as_soon_as_libvirt_can(
    tmp_path: Path, kind: type[Exception] | None
) -> None:
    host = fake.FakeHost()
    guest = host.take()
    busy = fake.refusal(libvirt.VIR_ERR_OPERATION_TIMEOUT, LOCKED)
    guest.refusing = {"resume": [kind(LOCKED) if kind else busy]}

    assert end_of(tmp_path, FREEZE, kvm0=host) == DONE
    assert guest.power == RUNNING
    assert LOCKED in (tmp_path / "web-0.output").read_text(encoding="utf-8")


def test_guest_that_libvirt_does_not_suspend_is_a_failure(tmp_path: Path) -> None:
    host = fake.FakeHost()
    guest = host.take()
    guest.refusing = {"suspend": [fake.refusal(libvirt.VIR_ERR_OPERATION_TIMEOUT, LOCKED)]}

    end = end_of(tmp_path, FREEZE, kvm0=host)

    assert end == End(status=ImpactStatus.FAILED, reason=f"libvirt refused it: {LOCKED}")
    assert guest.calls.count("suspend") == 1


def test_guest_that_libvirt_has_suspended_with_an_error_is_resumed(tmp_path: Path) -> None:
    host = fake.FakeHost()
    guest = host.take()
    guest.refusing = {"suspend": [fake.refusal(libvirt.VIR_ERR_OPERATION_TIMEOUT, LOCKED)]}
    guest.obeys = True

    assert end_of(tmp_path, FREEZE, kvm0=host) == DONE
    assert guest.calls.count("resume") == 1


@pytest.mark.parametrize("spoilt", ["", "<impact/>", "until"])
def test_guest_is_resumed_in_time_whatever_becomes_of_its_mark(tmp_path: Path, spoilt: str) -> None:
    host = fake.FakeHost()
    guest = host.take()
    ended = attend(tmp_path, FREEZE, kvm0=host)

    wait_until(lambda: guest.power == PAUSED, "the guest is not suspended")
    guest.mark = guest.mark.replace('until="20', 'until="29') if spoilt == "until" else spoilt

    wait_until(lambda: ended() is not None, "the steward does not end")
    assert ended() == DONE
    assert guest.power == RUNNING


def test_guest_is_found_on_its_new_host_although_another_host_is_away(tmp_path: Path) -> None:
    away, there = fake.FakeHost(is_away=True), fake.FakeHost()
    here = fake.FakeHost()
    here.take()

    end = end_of(tmp_path, MIGRATION, kvm0=here, kvm1=away, kvm2=there)

    assert end == replace(DONE, moved_to="kvm-2")
    assert [each.called for each in there.domains] == ["web-0"]


def test_guest_is_not_given_up_while_the_host_that_may_have_it_is_away(tmp_path: Path) -> None:
    here, away = fake.FakeHost(), fake.FakeHost(is_away=True)
    stewards.StewardNotes(tmp_path / "web-0.begun").begin()
    away.take(mark=mark_of(MarkPhase.MIGRATE).encode())

    ended = attend(tmp_path, MIGRATION, kvm0=here, kvm1=away, kvm2=fake.FakeHost())
    wait_until((tmp_path / "web-0.output").exists, "the steward says nothing")
    assert ended() is None
    away.is_away = False

    wait_until(lambda: ended() is not None, "the steward does not end")
    assert ended() == replace(DONE, moved_to="kvm-1")


def test_guest_that_starts_with_its_host_does_so_after_a_migration(tmp_path: Path) -> None:
    here, there = fake.FakeHost(), fake.FakeHost()
    here.take().autostarts = 1

    end_of(tmp_path, MIGRATION, kvm0=here, kvm1=there, kvm2=fake.FakeHost(is_away=True))

    assert there.domains[0].autostarts == 1


def test_guest_starts_with_its_host_again_after_a_steward_was_killed(tmp_path: Path) -> None:
    """It was killed after it had seen to it that the old host does not start the guest."""
    here, there = fake.FakeHost(), fake.FakeHost()
    mark = mark_of(MarkPhase.MOVE, to="kvm-1", has_autostart=True)
    here.take(mark=mark.encode()).power = OFF
    plan = replace(MIGRATION, event_type=EventType.REDEPLOY)

    end = end_of(tmp_path, plan, kvm0=here, kvm1=there, kvm2=fake.FakeHost())

    assert end == replace(DONE, moved_to="kvm-1")
    assert [each.autostarts for each in there.domains] == [1]


@pytest.mark.parametrize("ignores", [False, True])
def test_transient_guest_is_gone_when_it_is_terminated(tmp_path: Path, *, ignores: bool) -> None:
    host = fake.FakeHost()
    guest = host.take()
    guest.persistent = False
    plan = replace(FREEZE, event_type=EventType.TERMINATE, grace=SECOND / 10)
    if ignores:
        guest.refusing = {"shutdown": [fake.refusal(libvirt.VIR_ERR_OPERATION_FAILED)] * 9}

    assert end_of(tmp_path, plan, kvm0=host) == DONE
    assert host.domains == []


def test_guest_that_somebody_undefines_while_it_is_suspended_has_failed(tmp_path: Path) -> None:
    host = fake.FakeHost()
    guest = host.take()
    ended = attend(tmp_path, FREEZE, kvm0=host)

    wait_until(lambda: guest.power == PAUSED, "the guest is not suspended")
    host.domains.clear()

    wait_until(lambda: ended() is not None, "the steward does not end")
    reason = "there is no domain 'web-0' on host kvm-0"
    assert ended() == End(status=ImpactStatus.FAILED, reason=reason)


def test_time_of_a_steward_goes_on_evenly_from_when_it_began() -> None:
    elapsed = iter([100.0, 100.5, 107.0])

    now = stewards.go_on_from(NOW, lambda: next(elapsed))

    assert [now(), now()] == [NOW + SECOND / 2, NOW + 7 * SECOND]


def test_guest_that_pauses_again_is_resumed_again_but_not_at_once(tmp_path: Path) -> None:
    host = fake.FakeHost()
    guest = host.take()
    guest.relapses = 2
    began = time.monotonic()

    assert end_of(tmp_path, FREEZE, kvm0=host) == DONE
    assert guest.calls.count("resume") == 3
    assert time.monotonic() - began > 2
