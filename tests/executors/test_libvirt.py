"""Guests of libvirt's test driver: what is done to them, once, whoever is left to do it."""

import json
import os
import signal
import socket
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from tests.executors.conftest import (
    EVENT,
    HOSTS,
    NOW,
    ORDER,
    OTHER,
    WEB_0,
    WEB_1,
    Grant,
    begin_when_there_is_a_place,
    host_called,
    is_over,
    log_in,
    order_for,
    run_and_be_killed,
    wait_for,
    wait_until,
)
from tests.executors.libvirtd import (
    Libvirtd,
    fleet_of,
    libvirtd,
    make_libvirt,
    wait_for_stewards,
)
from tests.executors.test_libvirt_decisions import PLAN
from tests.needs import say_missing
from tests.web_site import OUTBOUND

from forewarn.bootstrap.runners import choose_runners
from forewarn.clocks import SystemClock
from forewarn.domain.event import ScheduledEvent
from forewarn.domain.impact import Impact, ImpactStatus
from forewarn.domain.names import HostName
from forewarn.domain.topology import Closure, Host, Topology
from forewarn.executors.libvirt.hypervisors import Hypervisor
from forewarn.executors.libvirt.marks import NAMESPACE, MarkPhase
from forewarn.executors.libvirt.plans import HostPlace
from forewarn.executors.processes import ProcessRunner
from forewarn.executors.simulated import MANUALLY
from forewarn.executors.task_input import Selection, TaskInput
from forewarn.files.fleet import read_fleet_file
from forewarn.operations.context import Context
from forewarn.operations.inventory import apply_fleet
from forewarn.protocol.vocabulary import EventId, EventType
from forewarn.settings import make_settings
from forewarn.storage.sqlite import open_sqlite

libvirt = pytest.importorskip("libvirt", reason=say_missing("libvirt-python"))
deeds = pytest.importorskip("forewarn.executors.libvirt.deeds")

RUNNING, PAUSED, OFF = 1, 3, 5
SECOND = timedelta(seconds=1)
KVM_0, KVM_1 = HOSTS[WEB_0], HOSTS[WEB_1]

Guests: TypeAlias = ProcessRunner[Hypervisor]


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Libvirtd]:
    with libvirtd() as made:
        yield made
        wait_for_stewards(tmp_path)


def event_of(event_type: EventType, seconds: int | None = None) -> ScheduledEvent:
    return replace(EVENT, event_type=event_type, duration_in_seconds=seconds)


def executor_of(folder: Path, daemon: Libvirtd, **more: object) -> Guests:
    means = Hypervisor(**{"uri": daemon.uri, "timeout": 60 * SECOND, **more})  # type: ignore[arg-type]
    return make_libvirt(folder, means)


def begin(executor: Guests, event: ScheduledEvent = EVENT) -> Guests:
    """Begin *event* on its first machine, and return the runner."""
    return begin_order(executor, order_for(event=event))


def begin_order(executor: Guests, order: TaskInput) -> Guests:
    executor.begin(order, Grant())
    return executor


def steward_of(folder: Path) -> int:
    """Return the process that has the order of the guest, which holds the lock of its file."""
    (path,) = folder.glob("tasks/*/web-0.begun")
    inode = f":{path.stat().st_ino} "
    wait_until(lambda: inode in Path("/proc/locks").read_text(encoding="utf-8"), "no lock")
    pids = [each for each in Path("/proc").iterdir() if each.name.isdecimal()]
    (found,) = [int(each.name) for each in pids if str(path) in command_line(each)]
    return found


def command_line(process: Path) -> str:
    try:
        words = (process / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return ""
    return words[-2].decode() if b"forewarn.executors.libvirt.steward" in words else ""


def test_freeze_suspends_the_guest_for_its_duration(daemon: Libvirtd, tmp_path: Path) -> None:
    daemon.define("web-0")
    event = event_of(EventType.FREEZE, 2)
    executor = begin(executor_of(tmp_path, daemon), event)

    wait_until(lambda: daemon.state("web-0") == PAUSED, "the guest is not suspended")
    began = time.monotonic()
    frozen = wait_for(executor, lambda impact: "suspended" in impact.reason)

    assert frozen.reason.startswith("it is suspended until ")
    assert wait_for(executor, is_over) == Impact(status=ImpactStatus.DONE)
    assert time.monotonic() - began > 1.5
    assert daemon.state("web-0") == RUNNING
    assert (daemon.deeds()["suspend", "web-0"], daemon.deeds()["resume", "web-0"]) == (1, 1)


def test_frozen_guest_is_resumed_in_time_when_the_server_is_gone(
    daemon: Libvirtd, tmp_path: Path
) -> None:
    daemon.define("web-0")
    event = event_of(EventType.FREEZE, 2)
    begin(executor_of(tmp_path, daemon), event).close()

    wait_until(lambda: daemon.state("web-0") == PAUSED, "the guest is not suspended")
    wait_until(lambda: daemon.state("web-0") == RUNNING, "nobody resumes the guest", seconds=20)


SERVER = """
import os, signal, sys
from pathlib import Path
from dataclasses import replace
from tests.executors.conftest import EVENT, begin, order_for, wait_until
from tests.executors.libvirtd import make_libvirt
from forewarn.executors.libvirt.hypervisors import Hypervisor
from forewarn.protocol.vocabulary import EventType

folder, uri = Path(sys.argv[1]), sys.argv[2]
event = replace(EVENT, event_type=EventType.FREEZE, duration_in_seconds=3)
executor, order = make_libvirt(folder, Hypervisor(uri=uri)), order_for(event=event)
begin(executor, order)
is_frozen = lambda: "suspended" in executor.inquire(order).reason
wait_until(is_frozen, "the guest is not suspended")
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_guest_is_resumed_in_time_when_the_server_is_killed(
    daemon: Libvirtd, tmp_path: Path
) -> None:
    daemon.define("web-0")

    run_and_be_killed(SERVER, tmp_path, daemon.uri)

    assert daemon.state("web-0") == PAUSED
    wait_until(lambda: daemon.state("web-0") == RUNNING, "nobody resumes the guest", seconds=20)
    next_server = executor_of(tmp_path, daemon)
    assert wait_for(next_server, is_over) == Impact(status=ImpactStatus.DONE)
    assert daemon.deeds()["suspend", "web-0"] == 1


def test_successor_resumes_a_guest_whose_steward_was_killed(
    daemon: Libvirtd, tmp_path: Path
) -> None:
    daemon.define("web-0")
    event = event_of(EventType.FREEZE, 2)
    begin(executor_of(tmp_path, daemon), event)
    wait_until(lambda: daemon.state("web-0") == PAUSED, "the guest is not suspended")
    os.kill(steward_of(tmp_path), signal.SIGKILL)

    second = executor_of(tmp_path, daemon)

    assert wait_for(second, is_over).status is ImpactStatus.DONE
    assert daemon.state("web-0") == RUNNING
    assert daemon.deeds()["suspend", "web-0"] == 1


def test_frozen_guest_is_resumed_at_once_when_its_steward_is_told_to_stop(
    daemon: Libvirtd, tmp_path: Path
) -> None:
    daemon.define("web-0")
    event = event_of(EventType.FREEZE, 600)
    executor = begin(executor_of(tmp_path, daemon), event)
    wait_until(lambda: daemon.state("web-0") == PAUSED, "the guest is not suspended")

    os.kill(steward_of(tmp_path), signal.SIGTERM)

    assert wait_for(executor, is_over).status is ImpactStatus.DONE
    assert daemon.state("web-0") == RUNNING


def test_steward_is_told_to_stop_whichever_of_its_threads_receives_the_signal(
    daemon: Libvirtd, tmp_path: Path
) -> None:
    daemon.define("web-0")
    event = event_of(EventType.FREEZE, 600)
    executor = begin(executor_of(tmp_path, daemon), event)
    wait_until(lambda: daemon.state("web-0") == PAUSED, "the guest is not suspended")
    steward = steward_of(tmp_path)
    os.kill(steward, signal.SIGSTOP)
    wait_until(lambda: is_stopped(steward), "the steward is not stopped")

    os.kill(steward, signal.SIGTERM)
    os.kill(steward, signal.SIGCONT)  # all threads wake up, and the first one takes the signal

    assert wait_for(executor, is_over).status is ImpactStatus.DONE
    assert daemon.state("web-0") == RUNNING


def is_stopped(pid: int) -> bool:
    tasks = Path(f"/proc/{pid}/task").glob("*/stat")
    return all(
        each.read_text(encoding="utf-8").rpartition(")")[2].split()[0] == "T" for each in tasks
    )


def test_guest_that_ignores_the_button_is_reset_after_its_grace(
    daemon: Libvirtd, tmp_path: Path
) -> None:
    daemon.define("web-0")

    executor = begin(executor_of(tmp_path, daemon, grace=2 * SECOND), EVENT)

    waiting = wait_for(executor, lambda impact: "waiting" in impact.reason)
    assert waiting.reason == "it is waiting for the guest to restart"
    ended = wait_for(executor, is_over)
    reason = "the guest did not restart within 2s and was reset"
    assert ended == Impact(status=ImpactStatus.DONE, reason=reason)
    assert (daemon.deeds()["reboot", "web-0"], daemon.deeds()["reset", "web-0"]) == (1, 1)


def test_guest_that_shuts_down_instead_of_restarting_is_started(
    daemon: Libvirtd, tmp_path: Path
) -> None:
    daemon.define("web-0", on_reboot="destroy")

    executor = begin(executor_of(tmp_path, daemon), EVENT)

    assert wait_for(executor, is_over) == Impact(status=ImpactStatus.DONE)
    assert daemon.state("web-0") == RUNNING
    assert daemon.deeds()["create", "web-0"] == 2, "once by the test"


def test_reboot_that_nobody_watched_is_unknown_and_not_done_again(
    daemon: Libvirtd, tmp_path: Path
) -> None:
    daemon.define("web-0")
    begin(executor_of(tmp_path, daemon, grace=2 * SECOND), EVENT)
    wait_until(lambda: daemon.deeds()["reboot", "web-0"] == 1, "the guest is not asked")
    os.kill(steward_of(tmp_path), signal.SIGKILL)

    second = executor_of(tmp_path, daemon)

    lost = wait_for(second, lambda impact: impact.status is ImpactStatus.UNKNOWN)
    assert lost.reason == (
        "no process watched the domain, so it is unknown whether it was restarted; "
        "check the virtual machine, then settle the task"
    )
    assert (daemon.deeds()["reboot", "web-0"], daemon.deeds()["reset", "web-0"]) == (1, 0)


@pytest.mark.parametrize("event_type", [EventType.PREEMPT, EventType.TERMINATE])
def test_guest_is_shut_down_and_stays_defined(
    daemon: Libvirtd, tmp_path: Path, event_type: EventType
) -> None:
    daemon.define("web-0")
    event = event_of(event_type)

    executor = begin(executor_of(tmp_path, daemon), event)

    assert wait_for(executor, is_over) == Impact(status=ImpactStatus.DONE)
    assert daemon.state("web-0") == OFF
    assert daemon.deeds()["destroy", "web-0"] == 0


def test_guest_that_does_not_shut_down_is_stopped_after_its_grace(
    daemon: Libvirtd, tmp_path: Path
) -> None:
    daemon.define("web-0", on_poweroff="restart")
    event = event_of(EventType.TERMINATE)

    executor = begin(executor_of(tmp_path, daemon, grace=2 * SECOND), event)

    ended = wait_for(executor, is_over)
    assert ended.status is ImpactStatus.DONE
    assert ended.reason == "the guest did not shut down within 2s and was stopped"
    assert daemon.state("web-0") == OFF
    assert daemon.deeds()["destroy", "web-0"] == 1


def test_other_replica_follows_the_mark_of_the_first(daemon: Libvirtd, tmp_path: Path) -> None:
    daemon.define("web-0")
    event = event_of(EventType.FREEZE, 3)
    begin(executor_of(tmp_path, daemon), event)
    wait_until(lambda: daemon.state("web-0") == PAUSED, "the guest is not suspended")
    (tmp_path / "other").mkdir()

    other = begin(executor_of(tmp_path / "other", daemon), event)

    assert wait_for(other, is_over).status is ImpactStatus.DONE
    assert daemon.deeds()["suspend", "web-0"] == 1


def test_guest_is_found_by_its_uuid_first(daemon: Libvirtd, tmp_path: Path) -> None:
    uuid = "6ed9e117-1d0a-447b-a965-32afbf64672d"
    daemon.define("vm-called-otherwise", uuid=uuid)
    daemon.define("web-0")
    event = event_of(EventType.TERMINATE)
    fleet = fleet_of(vm_ids={WEB_0: uuid})
    executor = make_libvirt(tmp_path, Hypervisor(uri=daemon.uri), fleet=fleet)

    begin(executor, event)

    assert wait_for(executor, is_over).status is ImpactStatus.DONE
    assert (daemon.state("vm-called-otherwise"), daemon.state("web-0")) == (OFF, RUNNING)


def test_domain_that_is_not_there_fails_by_name(daemon: Libvirtd, tmp_path: Path) -> None:
    executor = begin(executor_of(tmp_path, daemon), EVENT)

    ended = wait_for(executor, is_over)
    assert ended.status is ImpactStatus.FAILED
    assert ended.reason == "there is no domain 'web-0' on host kvm-0"


@pytest.mark.parametrize("event_type", [EventType.FREEZE, EventType.REBOOT])
def test_guest_that_is_paused_by_somebody_is_left_alone(
    daemon: Libvirtd, tmp_path: Path, event_type: EventType
) -> None:
    daemon.define("web-0").suspend()
    event = event_of(event_type, 1)

    executor = begin(executor_of(tmp_path, daemon), event)

    ended = wait_for(executor, is_over)
    assert (ended.status, ended.reason) == (
        ImpactStatus.FAILED,
        "the domain is paused on host kvm-0",
    )
    assert daemon.state("web-0") == PAUSED


@pytest.mark.parametrize(
    ("uri", "problem"),
    [
        ("bogus+unix:///system?socket=/nowhere", "cannot connect to bogus+unix:///system"),
        ("qemu+tcp://127.0.0.1:1/system", "Connection refused"),
    ],
)
def test_host_that_is_gone_fails_by_name(tmp_path: Path, uri: str, problem: str) -> None:
    means = Hypervisor(uri=uri, connect_timeout=SECOND)

    ended = wait_for(begin(make_libvirt(tmp_path, means), EVENT), is_over)

    assert ended.status is ImpactStatus.FAILED
    assert problem in ended.reason
    assert ended.reason.endswith("; nothing was begun")


def test_uri_that_needs_a_host_fails_without_one(tmp_path: Path) -> None:
    executor = make_libvirt(tmp_path, Hypervisor(uri="qemu+ssh://{host}/system"))
    order = replace(order_for(), host=None)

    ended = wait_for(begin_order(executor, order), is_over)

    assert ended.reason == (
        "the URI 'qemu+ssh://{host}/system' needs a host, but the fleet has none for web-0"
    )


@pytest.fixture
def silent(tmp_path: Path) -> Iterator[str]:
    """Return the URI of a libvirt that accepts connections and never answers."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        listener.listen()
        yield f"qemu+unix:///system?socket={tmp_path}/s"


def test_libvirt_that_hangs_fails_by_name(silent: str, tmp_path: Path) -> None:
    means = Hypervisor(uri=silent, connect_timeout=SECOND)

    ended = wait_for(begin(make_libvirt(tmp_path, means), EVENT), is_over)

    assert ended.status is ImpactStatus.FAILED
    assert ended.reason == f"{silent} did not answer within 1 s; nothing was begun"


def test_libvirt_that_hangs_holds_up_only_its_own_host(
    daemon: Libvirtd, silent: str, tmp_path: Path
) -> None:
    daemon.define("web-1", on_reboot="destroy")
    hanging = Hypervisor(
        uri=silent, connect_timeout=60 * SECOND, selection=Selection(hosts=(KVM_0,))
    )
    executor = make_libvirt(tmp_path, hanging, Hypervisor(uri=daemon.uri), places_of_host=1)

    begin(executor)
    begin_order(executor, OTHER)
    other = wait_for(executor, is_over, OTHER)
    hung = executor.inquire(ORDER)
    os.kill(steward_of(tmp_path), signal.SIGKILL)
    (tmp_path / "tasks" / EVENT.event_id / "web-0.ended").touch()

    assert other.status is ImpactStatus.DONE
    assert hung.status is ImpactStatus.RUNNING


def test_guests_of_one_host_wait_for_a_place_of_it(daemon: Libvirtd, tmp_path: Path) -> None:
    daemon.define("web-0")
    executor = make_libvirt(
        tmp_path, Hypervisor(uri=daemon.uri, grace=2 * SECOND), places_of_host=1
    )
    second = replace(OTHER, host=KVM_0)

    begin(executor)
    said = executor.begin(second, Grant())

    assert said == Impact(
        status=ImpactStatus.NOT_BEGUN,
        reason="it is waiting: at most 1 run at once for host kvm-0",
    )
    begin_when_there_is_a_place(executor, second)
    assert wait_for(executor, is_over, second).status is ImpactStatus.FAILED, "there is none"
    assert executor.inquire(ORDER).status is ImpactStatus.DONE


def test_mark_that_is_gone_is_not_taken_for_nothing_done(daemon: Libvirtd, tmp_path: Path) -> None:
    daemon.define("web-0")
    executor = begin(executor_of(tmp_path, daemon), EVENT)
    wait_until(lambda: daemon.deeds()["reboot", "web-0"] == 1, "the guest is not asked")

    element, everywhere = libvirt.VIR_DOMAIN_METADATA_ELEMENT, 3
    daemon.domain("web-0").setMetadata(element, None, None, NAMESPACE, everywhere)

    lost = wait_for(executor, lambda impact: impact.status is not ImpactStatus.RUNNING)
    assert lost.status is ImpactStatus.UNKNOWN
    assert lost.reason.startswith(
        "it was begun, but the mark in the domain's metadata is missing; "
    )
    assert daemon.deeds()["reboot", "web-0"] == 1


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[Libvirtd, Libvirtd]]:
    """Return two hosts, kvm-0 and kvm-1."""
    with ExitStack() as stack:
        yield stack.enter_context(libvirtd()), stack.enter_context(libvirtd())
        wait_for_stewards(tmp_path)


def moving(
    folder: Path,
    pair: tuple[Libvirtd, Libvirtd],
    event: ScheduledEvent,
    fleet: Topology | None = None,
    **more: object,
) -> Guests:
    hypervisors = [
        Hypervisor(**{"uri": daemon.uri, "selection": Selection(hosts=(host,)), **more})  # type: ignore[arg-type]
        for daemon, host in zip(pair, (KVM_0, KVM_1), strict=True)
    ]
    fleet = fleet or fleet_of(host_called(KVM_0), host_called(KVM_1))
    return begin(make_libvirt(folder, *hypervisors, fleet=fleet), event)


DISK = """<disk type='file' device='disk'><source file='/default-pool/{name}'/>
<target dev='{target}'/></disk>"""
VOLUME = """<volume><name>{name}</name><capacity unit='bytes'>{size}</capacity>
<target><path>/default-pool/{name}</path></target></volume>"""


def test_redeploy_starts_the_guest_on_another_host(
    pair: tuple[Libvirtd, Libvirtd], tmp_path: Path
) -> None:
    here, there = pair
    here.define("web-0", devices=DISK.format(name="scratch", target="vdb"))
    pool = here.connection.storagePoolLookupByName("default-pool")
    pool.createXML(VOLUME.format(name="scratch", size=4096))
    old = there.connection.storagePoolLookupByName("default-pool")
    old.createXML(VOLUME.format(name="scratch", size=512))
    uuid = here.domain("web-0").UUIDString()
    event = event_of(EventType.REDEPLOY)

    executor = moving(tmp_path, pair, event, ephemeral=("vdb",))

    assert wait_for(executor, is_over) == Impact(status=ImpactStatus.DONE, moved_to=KVM_1)
    assert there.state("web-0") == RUNNING
    assert there.domain("web-0").UUIDString() == uuid
    assert old.storageVolLookupByName("scratch").info()[1] == 4096, "it is made anew"
    assert "web-0" not in here.connection.listDefinedDomains()
    assert here.deeds()["destroy", "web-0"] == 0, "it was asked to shut down"


def test_redeploy_without_another_host_fails_and_touches_nothing(
    pair: tuple[Libvirtd, Libvirtd], tmp_path: Path
) -> None:
    pair[0].define("web-0")
    closure = Closure(closed_at=NOW, closed_by="ops")
    fleet = fleet_of(
        host_called(KVM_0),
        Host(name=KVM_1, closure=closure),
        Host(name=HostName("kvm-9")),
    )

    ended = wait_for(moving(tmp_path, pair, event_of(EventType.REDEPLOY), fleet), is_over)

    assert ended.status is ImpactStatus.FAILED
    assert ended.reason == (
        "no other host can take the guest (kvm-1: it is closed; kvm-9: it has no [[libvirt]] table)"
    )
    assert pair[0].state("web-0") == RUNNING
    assert pair[0].deeds()["shutdown", "web-0"] == 0


def test_redeploy_of_a_guest_that_fits_nowhere_fails_and_touches_nothing(
    pair: tuple[Libvirtd, Libvirtd], tmp_path: Path
) -> None:
    pair[0].define("web-0", memory=str(2**20))

    ended = wait_for(moving(tmp_path, pair, event_of(EventType.REDEPLOY)), is_over)

    assert ended.reason == (
        "no other host can take the guest (kvm-1: it has 3 MiB free, the guest needs 1024 MiB)"
    )
    assert pair[0].state("web-0") == RUNNING


def test_redeploy_that_the_other_host_refuses_starts_the_guest_where_it_was(
    pair: tuple[Libvirtd, Libvirtd], tmp_path: Path
) -> None:
    here, there = pair
    here.define("web-0")
    there.define("web-0")  # another guest with the same name

    ended = wait_for(moving(tmp_path, pair, event_of(EventType.REDEPLOY)), is_over)

    assert ended.status is ImpactStatus.FAILED
    assert ended.reason.startswith(
        "host kvm-1 cannot run the guest, so it was started where it was: operation failed: domain "
    )
    assert here.state("web-0") == RUNNING
    assert ended.moved_to is None


class Lost:
    """A host that starts a guest, and cannot be asked about it any more."""

    def defineXML(self, _: str) -> "Lost":  # noqa: N802 - libvirt's
        return self

    def create(self) -> None:
        raise libvirt.libvirtError("the connection was lost")

    state = create


def test_guest_stays_off_while_nobody_knows_whether_it_runs_on_the_other_host(
    daemon: Libvirtd,
) -> None:
    guest = daemon.define("web-0")
    guest.destroy()
    there: Any = Lost()
    place = HostPlace(host="kvm-1", uri="")

    destination = deeds.Destination(place=place, connection=there)
    with pytest.raises(libvirt.libvirtError):
        deeds.move(replace(PLAN, ephemeral=()), guest, daemon.connection, destination)

    assert daemon.state("web-0") == OFF
    assert "web-0" in daemon.connection.listDefinedDomains()


def test_redeploy_goes_on_where_a_killed_steward_has_left_it(
    pair: tuple[Libvirtd, Libvirtd], tmp_path: Path
) -> None:
    """Both hosts have the guest, shut off: the first was killed between defining and starting."""
    here, there = pair
    here.define("web-0", uuid="6ed9e117-1d0a-447b-a965-32afbf64672d").destroy()
    there.define("web-0", uuid="6ed9e117-1d0a-447b-a965-32afbf64672d").destroy()
    for daemon in pair:
        daemon.mark("web-0", MarkPhase.MOVE, to=KVM_1)

    ended = wait_for(moving(tmp_path, pair, event_of(EventType.REDEPLOY)), is_over)

    assert ended == Impact(status=ImpactStatus.DONE, moved_to=KVM_1)
    assert there.state("web-0") == RUNNING
    assert here.connection.listDefinedDomains() == []


def test_migration_that_is_refused_leaves_the_guest_running(
    pair: tuple[Libvirtd, Libvirtd], tmp_path: Path
) -> None:
    """The test driver has no migration."""
    pair[0].define("web-0")

    ended = wait_for(moving(tmp_path, pair, event_of(EventType.FREEZE, 5), migrate=True), is_over)

    assert ended.status is ImpactStatus.FAILED
    assert ended.reason.startswith(
        "the migration to host kvm-1 failed; the domain is on host kvm-0: this function is not"
    )
    assert pair[0].state("web-0") == RUNNING


def test_steward_that_dies_again_and_again_is_not_succeeded_for_ever(
    daemon: Libvirtd, tmp_path: Path
) -> None:
    daemon.define("web-0")
    folder = tmp_path / "tasks" / EVENT.event_id
    folder.mkdir(parents=True)
    content = {"executor": "libvirt", "host": KVM_0, "plan": {"wrong": "on purpose"}}
    (folder / "web-0.begun").write_text(json.dumps(content), encoding="utf-8")
    executor = executor_of(tmp_path, daemon)

    lost = wait_for(executor, lambda impact: impact.status is ImpactStatus.UNKNOWN)
    (folder / "web-0.ended").touch()

    assert lost.reason.startswith("it was begun, but the process running it stopped before")


FLEET = """
[[availability_set]]
name = "web"

[[virtual_machine]]
name = "web-0"
availability_set = "web"
host = "kvm-0"

[[virtual_machine]]
name = "web-1"
availability_set = "web"
host = "kvm-1"
"""


def test_executor_file_names_the_libvirt_of_a_host(daemon: Libvirtd, tmp_path: Path) -> None:
    daemon.define("web-0", on_reboot="destroy")
    file = tmp_path / "executors.toml"
    file.write_text(f'[[libvirt]]\nhosts = ["KVM-0"]\nuri = "{daemon.uri}"\n', encoding="utf-8")

    database = f"sqlite:///{tmp_path / 'forewarn.db'}"
    settings = make_settings({"database": database, "executor_file": file})
    with closing(open_sqlite(settings.database_path)) as store:
        context = Context(who="test", now=NOW, at=NOW, new_id=lambda: EventId(str(uuid.uuid4())))
        store.write(lambda tx: apply_fleet(tx, context, read_fleet_file(FLEET)))
        topology = store.read(lambda reading: reading.topology())
        make = choose_runners(settings, OUTBOUND)

        with make(store, SystemClock(), log_in(tmp_path)) as runners:
            assigned = runners.assign_impact(EVENT, WEB_0, topology, NOW)
            other = runners.assign_impact(EVENT, WEB_1, topology, NOW)
            runner = runners.runner(assigned.runner)
            assert runner is not None
            runner.begin(ORDER, Grant())
            ended = wait_for(runner, is_over)

    assert assigned.runner == "libvirt"
    assert ended == Impact(status=ImpactStatus.DONE)
    assert other == MANUALLY
