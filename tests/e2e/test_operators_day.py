"""An operator patches sixty hosts with nine hundred virtual machines, and not all goes well.

What happened is taken from the documents that virtual machines read and from the log of the scripts
that work on the hosts; nothing of it from what the server says of itself.
"""

import contextlib
import random
import re
import threading
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.conftest import Server, ServerMaker, wait_until
from tests.e2e.witness import (
    Line,
    Questioner,
    Saying,
    Sighting,
    Witness,
    most_at_once,
    now,
    read_log,
)

pytestmark = pytest.mark.timeout(300)

SPEED = 900
"""Of 15 minutes of notice one second is left."""
LONG_NOTICE, LONG_SECONDS = '"90m"', 6.0
"""What some have instead, and what that is at this speed."""
AT_ONCE = 6
HOSTS = [f"kvm-{number:02}" for number in range(60)]
CARRYING = 56
GROUP = 7
"""Hosts that share sets: five with an update domain each, and two without."""
DOMAINS = 5
CANARY = "kvm-00"
BAD_HOST = "kvm-40"
SILENT = "solo-08-0"
LATE, LATE_HOST = "late", "kvm-16"
BESIDE_LATE = "solo-16-0"
"""Its host starts only after its long notice, so that the late one comes before."""
BY_OPERATOR = "solo-31-0"
RESTARTED = "solo-55-0"
PATCHES = "Kernel of November"
ELSEWHEN = "At another time"
SLACK = 15.0
ROUND = 2.0
PATIENCE = 60.0

EXECUTORS = f"""
[[host_work]]
hosts = ["{BAD_HOST}"]
run = ["./work"]
verify = ["./work"]
verify_within = "6s"
verify_every = "1s"

[[host_work]]
hosts = ["{CANARY}"]
run = ["./work"]
verify = ["./work"]
return = ["./work"]

[[host_work]]
run = ["./work"]
verify = ["./work"]
verify_every = "1s"
"""
WORK = f"""#!/bin/sh
cd "$(dirname "$0")"
echo "$(date +%s.%N) $OPERATION_ID $OPERATION_HOST $OPERATION_TASK $OPERATION_ATTEMPT" >> log
[ "$OPERATION_TASK/$OPERATION_HOST" != verify/{BAD_HOST} ] || [ -e mended ]
"""
GATES = """
[[gate]]
name = "smoke"
kind = "command"
run = ["./smoke"]
every = "1s"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a virtual machine is."""

    host: str
    scope: str | None = None
    update_domain: int = 0


def make_fleet() -> dict[str, Place]:
    """Return nine hundred virtual machines; the last hosts are empty."""
    fleet: dict[str, Place] = {}
    for number, host in enumerate(HOSTS[:CARRYING]):
        group, domain = divmod(number, GROUP)
        in_sets = domain < DOMAINS
        for index in range(15 if in_sets else 0):
            scope = f"set-{group}-{index % 3}"
            fleet[f"{scope}-{domain}-{index}"] = Place(host=host, scope=scope, update_domain=domain)
        alone = (1 + (group < 4)) if in_sets else 15
        fleet |= {f"solo-{number:02}-{index}": Place(host=host) for index in range(alone)}
    return fleet


FLEET = make_fleet()
EVERYBODY = {**FLEET, LATE: Place(host=LATE_HOST)}


def declare(fleet: Mapping[str, Place]) -> str:
    return "".join(
        [
            *(f'[[host]]\nname = "{host}"\nlabels = {{ cluster = "a" }}\n' for host in HOSTS),
            *(
                f'[[availability_set]]\nname = "{scope}"\nupdate_domains = {DOMAINS}\n'
                for scope in dict.fromkeys(place.scope for place in fleet.values())
                if scope
            ),
            *(_declare_vm(name, place) for name, place in fleet.items()),
        ]
    )


def _declare_vm(name: str, place: Place) -> str:
    lines = [f'[[virtual_machine]]\nname = "{name}"\nhost = "{place.host}"']
    if place.scope:
        lines += [f'availability_set = "{place.scope}"', f"update_domain = {place.update_domain}"]
    if name in {SILENT, BY_OPERATOR, BESIDE_LATE}:
        lines += [f"notice = {LONG_NOTICE}"]
    return "\n".join([*lines, ""])


@dataclass(slots=True, kw_only=True)
class Day:
    """What the operator has, and what he has done."""

    server: Server
    folder: Path
    witness: Witness
    path: str = ""
    arrived: float = 0.0
    ended: float = 0.0
    acts: list[tuple[float, float]] = field(default_factory=list)
    downtimes: list[tuple[float, float]] = field(default_factory=list)

    @property
    def log(self) -> list[Line]:
        return read_log(self.folder / "log")

    def works(self) -> Counter[str]:
        return Counter(line.host for line in self.log if line.task == "work")

    def act(self, path: str, body: object, *, status: int = 200) -> Any:
        """Do something that changes the course of things."""
        with self.acting():
            answer = self.server.operate("POST", path, body)
        assert answer.status == status, answer
        return answer.json()

    @contextlib.contextmanager
    def acting(self) -> Iterator[None]:
        """Note from when to when the operator does something."""
        began = now()
        yield
        self.acts.append((began, now()))

    def start(self, order: Mapping[str, object]) -> str:
        begun = self.act("maintenances", order, status=201)
        return f"maintenances/{begun['maintenance_id']}"

    def kill(self) -> None:
        began = now()
        self.server.kill()
        self.server.start()
        self.downtimes.append((began, now()))

    def wait(self, is_so: Callable[[], bool], reason: str) -> None:
        wait_until(is_so, f"{reason}; {self.server.log}", PATIENCE, pause=0.2)

    def wait_for(self, vm: str, status: str) -> dict[str, Any]:
        """Return the event of *vm* as soon as a document shows it with *status*."""
        self.wait(lambda: self.witness.find(vm, status) is not None, f"{vm} has none {status}")
        found = self.witness.find(vm, status)
        assert found is not None
        return found


@pytest.fixture
def day(make_server: ServerMaker, tmp_path: Path) -> Generator[Day]:
    programs = {"work": WORK, "smoke": '#!/bin/sh\n[ -e "$(dirname "$0")/well" ]\n'}
    for name, text in programs.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "executors.toml").write_text(EXECUTORS, encoding="utf-8")
    (tmp_path / "gates.toml").write_text(GATES, encoding="utf-8")
    (tmp_path / "fleet.toml").write_text(declare(FLEET), encoding="utf-8")
    server = make_server(
        *("--executor-file", str(tmp_path / "executors.toml"), "--speed", str(SPEED)),
        *("--gates", str(tmp_path / "gates.toml")),
    )
    server.start()
    of_scopes = {place.scope or name: name for name, place in FLEET.items()}
    witness = Witness(server, list(of_scopes.values()), _approves, [SILENT, BY_OPERATOR])
    watching = threading.Thread(target=witness.watch)
    watching.start()
    yield Day(server=server, folder=tmp_path, witness=witness)
    witness.is_over.set()
    watching.join(PATIENCE)


def _approves(vm: str, event: Mapping[str, Any]) -> bool:
    """Tell whether a virtual machine of the scope of *vm* agrees at once."""
    if vm in {SILENT, LATE, BESIDE_LATE, BY_OPERATOR, RESTARTED}:
        return False
    dice = random.Random(event["EventId"])  # noqa: S311 - dice
    on_silent_host = FLEET[event["Resources"][0]].host == FLEET[SILENT].host
    return on_silent_host or dice.random() < 0.3


def test_sixty_hosts_are_patched_although_not_all_goes_well(day: Day) -> None:
    questioner = begin(day)
    asking = threading.Thread(target=questioner.ask_on)
    asking.start()
    with contextlib.ExitStack() as stack:
        stack.callback(asking.join, PATIENCE)
        stack.callback(questioner.is_over.set)
        walk_through(day, questioner)
    day.witness.is_over.set()

    seen = [each for each in day.witness.sightings().values() if _is_of_patches(each)]
    check_works(day)
    check_documents(day)
    check_notice(day, seen)
    check_places(seen)
    assert len(questioner.sayings) >= 15
    for saying in questioner.sayings:
        check_saying(day, saying)


def begin(day: Day) -> Questioner:
    """Start the Maintenance, and one that has to wait for its window."""
    hour = datetime.now(UTC)  # noqa: TID251 - windows are of the real time

    def window(first: int, last: int) -> str:
        return "daily {:%H:%M}-{:%H:%M} UTC".format(
            *(hour + timedelta(hours=hours) for hours in (first, last))
        )

    day.path = day.start(
        {
            "event_type": "Reboot",
            "host_labels": {"cluster": "a"},
            "description": PATCHES,
            "canary": [CANARY],
            "at_once": AT_ONCE,
            "gates": ["smoke"],
            "windows": [window(-2, 6)],
        }
    )
    day.start(
        {
            "event_type": "Freeze",
            "virtual_machines": ["solo-54-0"],
            "description": ELSEWHEN,
            "windows": [window(8, 10)],
        }
    )
    return Questioner(day.server, f"{day.path}/explain", random.Random(20_261_116))  # noqa: S311


def walk_through(day: Day, questioner: Questioner) -> None:
    """Do what an operator does until all is over, with three crashes on the way."""
    day.wait(lambda: _says(questioner, "gate smoke"), "nobody says that the gate is shut")
    assert day.works() == {CANARY: 1}
    with day.acting():
        (day.folder / "well").touch()
    day.act("virtual-machines/" + RESTARTED + "/restart", {}, status=201)
    day.wait(lambda: len(day.works()) > 5, "hosts are not worked on")
    day.kill()
    restart = day.wait_for(RESTARTED, "Started")
    day.wait_for(f"solo-{LATE_HOST[-2:]}-0", "Scheduled")
    arrive(day)
    day.kill()
    day.act(f"events/{restart['EventId']}/complete", {})
    event = day.wait_for(BY_OPERATOR, "Scheduled")
    day.witness.approvals.add(event["EventId"])
    day.act(f"events/{event['EventId']}/approve", {})
    mend(day, questioner)
    day.wait(lambda: len(day.works()) > 50, "hosts are not worked on")
    day.kill()
    day.wait(lambda: day.server.operate("GET", day.path).json()["outcome"], "it does not end")
    day.ended = now()
    questioner.ask()


def arrive(day: Day) -> None:
    """Have a virtual machine come to a host that is announced."""
    vm = {"name": LATE, "host": LATE_HOST, "notice": LONG_NOTICE.strip('"')}
    day.arrived = now()
    day.act("fleet", {"fleet": {"virtual_machine": [vm]}})
    day.witness.closely.append(LATE)


def _says(questioner: Questioner, words: str) -> bool:
    return any(words in str(saying.standstill["blockers"]) for saying in questioner.sayings)


def mend(day: Day, questioner: Questioner) -> None:
    """Wait until the bad host holds everything, mend it and have it tried again."""
    day.wait(
        lambda: day.server.operate("GET", day.path).json()["status"] == "held", "nothing is held"
    )
    said = questioner.ask()
    assert said["verdict"]["kind"] == "never"
    assert BAD_HOST in str(said["blockers"])
    works = len(day.log)
    day.wait(lambda: now() > questioner.sayings[-1].answered + 2, "time stands still")
    assert len(day.log) == works
    (day.folder / "mended").touch()
    with day.acting():
        done = day.server.try_command("maintenance", "retry", day.path.rpartition("/")[2], BAD_HOST)
    assert done.returncode == 0, done.stderr


def check_works(day: Day) -> None:
    """Each host was worked on once in each operation, and no more than six at a time."""
    log = day.log
    works = Counter((line.host, line.operation) for line in log if line.task == "work")
    assert set(works.values()) == {1}
    operations = Counter(host for host, _ in works)
    assert operations == {host: 2 if host == BAD_HOST else 1 for host in HOSTS}
    spans = {
        operation: [line.at for line in log if line.operation == operation]
        for _, operation in works
    }
    assert most_at_once((min(times), max(times)) for times in spans.values()) <= AT_ONCE
    returned = Counter(line.host for line in log if line.task == "return")
    assert returned == {CANARY: sum(place.host == CANARY for place in FLEET.values())}
    assert min(spans.values()) == spans[next(key for host, key in works if host == CANARY)]


def check_documents(day: Day) -> None:
    """No document has two update domains of a set, nor two impacts on one virtual machine."""
    for page in day.witness.pages:
        assert not any(event["Description"] == ELSEWHEN for event in page.events)
        patches = [event for event in page.events if event["Description"] == PATCHES]
        domains = {EVERYBODY[vm].update_domain for event in patches for vm in event["Resources"]}
        assert len(domains) <= 1, page
        started = [event for event in page.events if event["EventStatus"] == "Started"]
        impacts = Counter(vm for event in started for vm in event["Resources"])
        assert set(impacts.values()) <= {1}, page


def check_notice(day: Day, seen: list[Sighting]) -> None:
    """Nothing started before NotBefore without approval; whoever came later had notice, too."""
    for each in seen:
        is_early = each.started is not None and each.started < each.not_before
        assert not is_early or each.event["EventId"] in day.witness.approvals, each
    first = {vm: each for each in reversed(seen) for vm in each.event["Resources"]}
    silent, late, approved = (first[name] for name in (SILENT, LATE, BY_OPERATOR))
    for slowest in (silent, late):
        others = [each for each in seen if _host(each) == _host(slowest)]
        assert len(others) > 3
        assert all(each.started and each.started >= slowest.not_before for each in others)
    assert late.not_before >= day.arrived + LONG_SECONDS
    began = next(line.at for line in day.log if line.host == _host(approved))
    assert began < approved.not_before


def check_places(seen: list[Sighting]) -> None:
    """No more than six hosts were out at any time, announced or started."""
    spans: dict[str, list[tuple[float, float]]] = {}
    for each in sorted(seen, key=lambda each: each.first):
        own = spans.setdefault(_host(each), [])
        if own and each.first <= own[-1][1]:
            own[-1] = (own[-1][0], max(own[-1][1], each.last))
        else:
            own.append((each.first, each.last))
    assert spans.keys() == set(HOSTS[:CARRYING])
    assert most_at_once(span for own in spans.values() for span in own) <= AT_ONCE


def check_saying(day: Day, saying: Saying) -> None:
    """What was said of the Maintenance was so, and what was said of the future has come."""
    log, blockers = day.log, saying.standstill["blockers"]
    named = {EVERYBODY[vm].host for blocker in blockers for vm in blocker["vms"]}
    for host in named.union(re.findall(r"kvm-\w+", str(blockers))):
        assert max(line.at for line in log if line.host == host) > saying.asked - SLACK, saying
    verdict = saying.standstill["verdict"]
    changes = sorted([*day.witness.changes(), *(line.at for line in log)])
    match verdict["kind"]:
        case "over":
            assert log[-1].at < saying.answered
        case "never":
            # A change that is seen now may have happened a round ago.
            quiet = saying.answered + ROUND
            acted = min(began for began, ended in day.acts if ended > saying.asked)
            assert not [moment for moment in changes if quiet < moment < acted], saying
        case "now" | "by-time":
            until = verdict["until"]
            moment = datetime.fromisoformat(until).timestamp() if until else saying.answered
            limit = SLACK + sum(last - first for first, last in day.downtimes)
            assert any(saying.asked < change < moment + limit for change in changes), saying
        case kind:
            assert kind in {"by-progress", "no-further-step"}, saying
            # After the last change only the end is to come.
            assert changes[-1] > saying.asked or day.ended < saying.asked + SLACK, saying


def _is_of_patches(sighting: Sighting) -> bool:
    return bool(sighting.event["Description"] == PATCHES)


def _host(sighting: Sighting) -> str:
    return EVERYBODY[sighting.event["Resources"][0]].host
