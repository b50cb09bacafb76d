"""A Maintenance in each state: the same words wherever an operator looks.

A real scheduler, store, control API, console and command; only the impacts are not real.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from starlette.testclient import TestClient
from tests.findings import find_all
from tests.http.conftest import FLEET, MORNING, TOKEN, HandClock
from tests.http.control.tasks import put_work
from tests.loopback import on_loopback
from tests.replicas import ITSELF
from tests.tasks import RUNNING, Assigner, Workers
from typer.testing import CliRunner, Result

from forewarn.cli.app import app as command
from forewarn.cli.errors import ExitCode
from forewarn.clocks import SystemClock
from forewarn.console.app import create_console
from forewarn.console.pulse import Pulse
from forewarn.control.app import create_app
from forewarn.desk.refusals import Refusals
from forewarn.desk.services import Services
from forewarn.domain.impact import Impact, ImpactStatus, OwnerAway
from forewarn.domain.notification import Notification, Target
from forewarn.domain.standing import NEEDS_OPERATOR, NOT_OVER, MaintenanceStatus
from forewarn.domain.task import Owner, assign
from forewarn.operations.context import Context, Rules
from forewarn.operations.incidents import Incident, note_incident
from forewarn.operations.tasks import begin_task
from forewarn.ports.metrics import Distribution, Tally
from forewarn.ports.store import Store, Transaction
from forewarn.scheduler.scheduler import Scheduler
from forewarn.storage.lock import SoleReplica
from forewarn.telemetry.metrics import FigureSources, exporter

ALERTS = Path(__file__).parents[2] / "contrib/prometheus/alerts.yml"
AWAY = OwnerAway(
    name="kvm-a",
    since=MORNING.replace(hour=7, minute=57, second=7),
    pages_at=MORNING.replace(hour=8, minute=2, second=7),
)
LOST = Impact(status=ImpactStatus.UNKNOWN, reason="no answer")
STUCK = "the state of the impact on web-0 is unknown"
REPLICA = "kvm-a (away since 07:57:07, pages at 08:02:07 GMT)"


class World:
    """A server with a Maintenance of the set web, and an operator at a terminal and a browser."""

    def __init__(self, services: Services, clock: HandClock) -> None:
        self.store, self.said, self.is_away = services.store, RUNNING, False
        self.workers = Workers(self.store, lambda _: self.said)
        self.now = clock.now
        epoch = self.store.write(lambda tx: tx.next_epoch())
        self.scheduler = Scheduler(
            store=self.store,
            assigner=Assigner(),
            context=lambda: self._context(services, clock),
            epoch=epoch,
        )
        self.services = replace(
            services,
            settle=self._settle,
            metrics=_exporter(self.scheduler, self.store, services.context),
        )
        self.app = create_app(self.services)
        self.api = TestClient(self.app, base_url="http://control/api/v1/")
        self.api.headers["Authorization"] = f"Bearer {TOKEN}"
        self.post("fleet", fleet=FLEET)
        self.address = ""
        self.maintenance_id = ""

    def _context(self, services: Services, clock: HandClock) -> Context:
        rules = Rules(targets=(Target(name="ops"),))
        return replace(services.context("scheduler"), now=clock.now(), rules=rules)

    def _settle(self) -> None:
        if self.is_away:
            self.scheduler.settle()
        else:
            self.workers.settle(self.scheduler, self.now)

    def post(self, path: str, **body: object) -> Any:
        answer = self.api.post(path, json=body)
        assert answer.is_success, answer.text
        return answer.json()

    def begin(self, **course: object) -> None:
        order = {"event_type": "Freeze", "scopes": ["web"], **course}
        self.maintenance_id = self.post("maintenances", **order)["maintenance_id"]

    def steer(self, verb: str) -> None:
        self.post(f"maintenances/{self.maintenance_id}/{verb}")

    def do_to_event(self, verb: str) -> None:
        (event,) = self.api.get("events").json()["events"]
        self.post(f"events/{event['event_id']}/{verb}")

    def start_impact(self, said: Impact = RUNNING) -> None:
        """Have the first impact begin, of which this is *said*."""
        self.said = said
        self.do_to_event("start")

    def start_impact_elsewhere(self) -> None:
        """Have the first impact begin on another node, which is away now."""
        self.is_away = True
        self.do_to_event("start")
        (task,) = self.store.read(lambda reading: reading.tasks())
        owner = Owner(node=AWAY.name, name=AWAY.name, generation=1, heard_at=AWAY.since)
        theirs = assign(task, owner.node, epoch=task.epoch)

        def work(tx: Transaction) -> None:
            tx.put_owner(owner)
            tx.put_task(theirs)
            assert begin_task(tx, owner, theirs, AWAY.since)

        self.store.write(work)
        self._settle()

    def run(self, *arguments: str) -> Result:
        """Run a command on the server."""
        environment = {"FOREWARN_SERVER": self.address, "FOREWARN_TOKEN": TOKEN}
        return CliRunner().invoke(command, arguments, env=environment)

    def read(self, path: str) -> str:
        """Return the text of a page of the console."""
        console = create_console(self.services, Pulse(), Refusals(self.services))
        with closing(TestClient(console, base_url="http://localhost:8170")) as browser:
            browser.post("/login", headers={"Authorization": f"Bearer {TOKEN}"})
            return " ".join(re.sub(r"<[^>]*>", " ", browser.get(path).text).split())

    def figures(self) -> dict[str, float]:
        """Return how many Maintenances have which status, as the leader counts them."""
        text = self.services.metrics().decode()
        found = re.findall(r'^forewarn_maintenances\{status="(.*)"\} (\S+)$', text, re.MULTILINE)
        return {status: float(number) for status, number in found}

    def findings(self) -> dict[tuple[str, str], float]:
        """Return how many findings the metrics count, by check and verdict."""
        text = self.services.metrics().decode()
        pattern = r'^forewarn_findings\{check="(.*)",verdict="(.*)"\} (\S+)$'
        found = re.findall(pattern, text, re.MULTILINE)
        return {(check, verdict): float(number) for check, verdict, number in found}

    def messages(self) -> list[Notification]:
        found = self.store.read(lambda reading: reading.notifications())
        return [message for message in found if message.maintenance_id is not None]


def _exporter(scheduler: Scheduler, store: Store, context: Callable[[str], Context]) -> Any:
    return exporter(
        FigureSources(
            version="1",
            store=store,
            wall=SystemClock(),
            topology=lambda: store.read(lambda reading: reading.topology()),
            tally=Tally(),
            parked=int,
            watchers=int,
            followers=int,
            lateness=Distribution(()),
            epoch=lambda: scheduler.epoch,
            discovered=tuple,
            is_paused=bool,
            maintenances=scheduler.count_maintenances,
            endings={},
            occurrences={},
            loop_failures={},
            gates_shut=int,
            jumps=int,
            clock_offset=timedelta,
            expires_at=lambda: None,
            refused={},
            replicas=SoleReplica(store, ITSELF, now=SystemClock().now),
            findings=lambda *_: find_all(store, context("alice")),
        )
    )


@pytest.fixture
def world(services: Services, clock: HandClock) -> Iterator[World]:
    made = World(services, clock)
    with on_loopback(made.app) as made.address:
        yield made


def bring_about(world: World, status: MaintenanceStatus) -> str:
    """Put a Maintenance into the state, and return its detail."""
    later = {"windows": ["Sat 22:00-06:00 UTC"]} if status is MaintenanceStatus.WAITING else {}
    world.begin(**later)
    match status:
        case MaintenanceStatus.AWAY:
            world.start_impact_elsewhere()
            return REPLICA
        case MaintenanceStatus.STUCK:
            world.start_impact(LOST)
            return STUCK
        case MaintenanceStatus.PAUSED:
            world.steer("pause")
        case MaintenanceStatus.HELD:
            world.do_to_event("cancel")
        case MaintenanceStatus.ABORTING:
            world.start_impact()
            world.steer("abort")
        case _:  # as it is begun
            pass
    return ""


@pytest.mark.parametrize("status", NOT_OVER)
def test_all_places_say_the_same(world: World, status: MaintenanceStatus) -> None:
    detail = bring_about(world, status)
    key = world.maintenance_id
    text = {
        MaintenanceStatus.AWAY: f"waiting for replica {REPLICA}",
        MaintenanceStatus.STUCK: f"stuck: {STUCK}",
    }.get(status, str(status))
    is_paged = status in NEEDS_OPERATOR

    # 1 to 4: the commands
    (line,) = world.run("maintenance", "list").stdout.splitlines()[1:]
    assert re.split(r"  +", line)[2] == text
    assert re.search(rf"^status: +{re.escape(text)}$", shown(world, "status"), re.MULTILINE)
    assert shown(world, "explain").startswith(f"{key} is {text}.\n")
    waited = world.run("maintenance", "wait", key, "--timeout", "0s")
    assert f"Maintenance {key}: {text}, " in waited.stderr
    assert waited.exit_code == (ExitCode.FAILED if is_paged else ExitCode.TIMED_OUT)
    assert (f"Maintenance {key} is {text}." in waited.stderr) is is_paged
    # 5: the control API
    (listed,) = world.api.get("maintenances").json()["maintenances"]
    server = world.api.get("server").json()["maintenances"]
    for answer in (
        listed,
        *server,
        world.api.get(f"maintenances/{key}").json(),
        world.api.get(f"maintenances/{key}/explain").json(),
    ):
        assert (answer["maintenance_id"], answer["status"]) == (key, status)
        assert answer["status_text"] == text
    # 6: the console
    for page in ("/", "/maintenances", f"/maintenances/{key}"):
        assert f"{status.capitalize()} {detail}".rstrip() in world.read(page)
    is_told = is_paged or status is MaintenanceStatus.AWAY
    assert (f"Maintenance {key} is {text}." in world.read("/health")) is is_told
    # 7: the metrics
    assert world.figures() == {**dict.fromkeys(NOT_OVER, 0), status: 1}
    # 8: the notifications
    is_told = is_paged or status is MaintenanceStatus.PAUSED
    told = [(message.phase.value, message.data["detail"]) for message in world.messages()]
    stops = [each for each in told if each[0] != "step_failed"]
    assert stops == ([(status.value, detail)] if is_told else [])
    # 9: doctor, the status of the server, and the alerts
    doctor = json.loads(world.run("doctor", "--remote", "-o", "json").stdout)["findings"]
    verdict = "fail" if is_paged else "warn" if status is MaintenanceStatus.AWAY else "ok"
    (finding,) = (each for each in doctor if each["check"] == "maintenances")
    assert finding["verdict"] == verdict
    assert (f"Maintenance {key} is {text}." == finding["sentence"]) is (verdict != "ok")
    assert (finding["hint"] == f"try: forewarn maintenance explain {key}") is (verdict != "ok")
    assert f"{key}  {text}\n" in world.run("status").stdout
    assert firing(world.findings(), "maintenances") == {
        "fail": {"ForewarnCheckFails"},
        "warn": {"ForewarnCheckWarns"},
    }.get(verdict, set())


@pytest.mark.parametrize(
    ("status", "is_foreseen"),
    [
        (MaintenanceStatus.RUNNING, True),
        (MaintenanceStatus.HELD, False),
        (MaintenanceStatus.STUCK, False),
    ],
)
def test_console_foresees_no_step_or_end_while_operators_are_paged(
    world: World, status: MaintenanceStatus, *, is_foreseen: bool
) -> None:
    bring_about(world, status)

    assert ("ikely" in world.read(f"/maintenances/{world.maintenance_id}")) is is_foreseen


def test_console_says_of_a_host_that_the_work_is_under_way_when_impacts_are_over(
    world: World,
) -> None:
    key = world.post("maintenances", event_type="Reboot", hosts=["kvm-1"])["maintenance_id"]
    world.start_impact()
    put_work(world.store, key, "kvm-1")

    page = world.read(f"/maintenances/{key}")

    assert "The work on the host is under way." in page
    assert "The impact is under way." not in page


def test_finding_of_the_server_is_shown_by_status_doctor_and_the_console(world: World) -> None:
    incident = Incident(at=MORNING, sentence="It burned.", hint="put it out")
    world.store.write(lambda tx: note_incident(tx, incident))

    doctor = json.loads(world.run("doctor", "--remote", "-o", "json").stdout)["findings"]
    status = world.run("status").stdout

    (finding,) = (each for each in doctor if each["check"] == "tasks")
    assert finding["verdict"] == "fail"
    assert "It burned." in finding["sentence"]
    assert "It burned.  put it out\n" in status
    assert "It burned. put it out" in world.read("/health")
    assert world.findings()["tasks", "fail"] == 1
    assert firing(world.findings(), "tasks") == {"ForewarnCheckFails"}


def shown(world: World, verb: str) -> str:
    return world.run("maintenance", verb, world.maintenance_id).stdout


def firing(findings: Mapping[tuple[str, str], float], check: str) -> set[str]:
    """Return the alerts about findings that fire for *check*."""
    (group,) = yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"]
    pattern = (
        r"max by \(job, check\) "
        r'\(forewarn_findings\{(?:check!~"([a-z|]+)",)?verdict="(\w+)"\}\) > 0'
    )
    rules = {rule["alert"]: re.fullmatch(pattern, rule["expr"]) for rule in group["rules"]}
    return {
        alert
        for alert, found in rules.items()
        if found and check not in str(found[1]).split("|") and findings[check, found[2]] > 0
    }


def test_what_was_stuck_continues_when_an_operator_has_settled_it(world: World) -> None:
    bring_about(world, MaintenanceStatus.STUCK)
    world.said = RUNNING

    world.do_to_event("complete")

    assert world.figures()[MaintenanceStatus.STUCK] == 0
    assert [message.phase for message in world.messages()] == ["stuck", "resumed"]


def test_aborted_maintenance_with_a_lost_impact_is_stuck_until_it_is_settled(world: World) -> None:
    bring_about(world, MaintenanceStatus.STUCK)
    world.steer("abort")

    stuck = world.api.get(f"maintenances/{world.maintenance_id}").json()["status"]
    world.do_to_event("complete")
    over = world.api.get(f"maintenances/{world.maintenance_id}").json()["status"]

    assert (stuck, over) == ("stuck", "aborted")
    assert [message.phase for message in world.messages()] == ["stuck", "aborted"]


def test_explain_says_what_to_do_while_others_continue(world: World) -> None:
    """One of two hosts is lost, and the other goes on."""
    bring_about(world, MaintenanceStatus.STUCK)
    (event,) = world.api.get("events").json()["events"]

    said = shown(world, "explain")

    assert f"forewarn event complete {event['event_id']}" in said.splitlines()[-1]


def test_limited_operator_is_told_the_status_without_names(world: World) -> None:
    world.said = LOST
    world.begin(scopes=["web", "virtual-machine/solo"])
    web, _ = world.api.get("events").json()["events"]
    world.post(f"events/{web['event_id']}/start")
    order = {"name": "limited", "role": "viewer", "scopes": ["virtual-machine/solo"]}
    secret = world.post("tokens", **order)["secret"]

    headers = {"Authorization": f"Bearer {secret}"}
    path = f"maintenances/{world.maintenance_id}"
    explained, *others = (
        world.api.get(each, headers=headers)
        for each in (f"{path}/explain", path, "maintenances", "server")
    )

    assert (explained.json()["status"], explained.json()["status_text"]) == ("stuck", "stuck")
    assert not [each.url for each in (explained, *others) if "web-0" in each.text]
