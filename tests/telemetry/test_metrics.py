"""The figures of a real server: they tell what happened, whatever the size of the fleet."""

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from datetime import timedelta
from itertools import chain, repeat
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families
from structlog.testing import capture_logs
from tests.replicas import ITSELF

from forewarn.clocks import SystemClock
from forewarn.domain.topology import Topology
from forewarn.ports.metrics import Distribution, Tally
from forewarn.protocol.versions import NEWEST
from forewarn.storage.lock import SoleReplica
from forewarn.storage.sqlite import SqliteStore, open_sqlite
from forewarn.telemetry.metrics import METRICS, FigureSources, exporter
from forewarn.testing import Emulator

TIMEOUT = 25


class Scrape:
    """What one look at /metrics says."""

    def __init__(self, emulator: Emulator) -> None:
        with urlopen(f"{emulator.control_url}/metrics", timeout=TIMEOUT) as answer:
            self.content_type = answer.headers["Content-Type"]
            text = answer.read().decode()
        self.families = {family.name: family for family in text_string_to_metric_families(text)}
        self.samples = {
            (sample.name, *sorted(sample.labels.items())): sample.value
            for family in self.families.values()
            for sample in family.samples
        }

    def __call__(self, name: str, **labels: str) -> float:
        return self.samples[name, *sorted(labels.items())]


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    with Emulator({"virtual_machine": [{"name": "web-0"}, {"name": "web-1"}]}) as running:
        yield running


def ask(
    emulator: Emulator,
    vm: str,
    *,
    version: str = NEWEST.name,
    method: str | None = None,
    data: bytes | None = None,
    headers: Mapping[str, str] | None = None,
) -> int:
    """Poll as *vm*, or do what is said instead, and return the status."""
    url = f"http://{emulator.address}/vm/{vm}/metadata/scheduledevents?api-version={version}"
    sent = {"Metadata": "true", **(headers or {})}
    request = Request(url, headers=sent, method=method, data=data)
    try:
        with urlopen(request, timeout=TIMEOUT) as answer:
            return int(answer.status)
    except HTTPError as refused:
        return refused.code


def test_every_metric_is_as_the_table_says(emulator: Emulator) -> None:
    scrape = Scrape(emulator)

    found = {name: family for name, family in scrape.families.items() if "forewarn" in name}
    assert found.keys() == {name.removesuffix("_total") for name in METRICS}
    for name, family in METRICS.items():
        shown = found[name.removesuffix("_total")]
        assert (shown.type, shown.documentation) == (family.kind, family.help)
        for sample in shown.samples:
            assert sample.labels.keys() - {"le"} == set(family.labels)
    assert scrape.content_type.startswith("text/plain; version=")
    assert scrape("process_resident_memory_bytes") > 0


def test_life_of_an_event_is_in_the_figures(emulator: Emulator) -> None:
    Scrape(emulator)  # with which counting begins
    event = emulator.vm("web-0").reboot()
    emulator.clock.advance(minutes=3)

    announced = Scrape(emulator)
    event.approve()
    emulator.clock.advance(hours=1)
    over = Scrape(emulator)

    reboot = {"event_type": "Reboot"}
    scheduled = {**reboot, "event_status": "Scheduled"}
    assert announced("forewarn_events_in_flight", **scheduled) == 1
    assert announced("forewarn_notice_given_seconds_count", **reboot) == 0
    assert over("forewarn_events_in_flight", **scheduled) == 0
    assert over("forewarn_events_ended_total", **reboot, outcome="succeeded") == 1
    assert over("forewarn_notice_promised_seconds_sum", **reboot) == 900
    assert over("forewarn_notice_given_seconds_sum", **reboot) == 180
    assert over("forewarn_notice_given_seconds_bucket", **reboot, le="120.0") == 0
    assert over("forewarn_notice_given_seconds_bucket", **reboot, le="300.0") == 1
    assert over("forewarn_time_to_approve_seconds_sum", **reboot) == 180


def start_maintenance(emulator: Emulator) -> None:
    body = json.dumps({"event_type": "Reboot", "virtual_machines": ["web-0"]}).encode()
    headers = {
        "Authorization": f"Bearer {emulator.token}",
        "Content-Type": "application/json",
    }
    url = f"{emulator.control_url}/api/v1/maintenances"
    with urlopen(Request(url, data=body, headers=headers), timeout=TIMEOUT) as answer:
        assert answer.status == 201


def test_life_of_a_maintenance_is_in_the_figures(emulator: Emulator) -> None:
    start_maintenance(emulator)
    begun = Scrape(emulator)
    emulator.clock.advance(hours=1)
    over = Scrape(emulator)

    assert begun("forewarn_maintenances", status="running") == 1
    assert begun("forewarn_maintenances", status="held") == 0
    assert over("forewarn_maintenances", status="running") == 0
    assert over("forewarn_maintenances_ended_total", outcome="succeeded") == 1
    assert over("forewarn_maintenances_ended_total", outcome="incomplete") == 0
    assert over("forewarn_gates_shut") == 0
    for outcome in ("started", "skipped", "missed"):
        assert over("forewarn_schedule_occurrences_total", outcome=outcome) == 0


def test_event_that_nobody_approved_had_all_its_notice(emulator: Emulator) -> None:
    Scrape(emulator)  # with which counting begins
    emulator.vm("web-0").freeze()
    emulator.clock.advance(hours=1)

    scrape = Scrape(emulator)

    freeze = {"event_type": "Freeze"}
    promised = scrape("forewarn_notice_promised_seconds_sum", **freeze)
    assert promised == scrape("forewarn_notice_given_seconds_sum", **freeze) == 900
    assert scrape("forewarn_time_to_approve_seconds_count", **freeze) == 0


def test_canceled_event_is_no_success(emulator: Emulator) -> None:
    Scrape(emulator)  # with which counting begins
    emulator.vm("web-0").redeploy().cancel()

    scrape = Scrape(emulator)

    redeploy = {"event_type": "Redeploy"}
    assert scrape("forewarn_events_ended_total", **redeploy, outcome="canceled") == 1
    assert scrape("forewarn_events_ended_total", **redeploy, outcome="succeeded") == 0
    assert scrape("forewarn_notice_promised_seconds_count", **redeploy) == 0


def test_what_virtual_machines_ask_is_counted(emulator: Emulator) -> None:
    event = emulator.vm("web-0").reboot()
    body = json.dumps({"StartRequests": [{"EventId": event.event_id}]}).encode()

    assert ask(emulator, "web-0") == ask(emulator, "web-1") == 200
    assert ask(emulator, "web-0", version="2019-08-01") == 200
    assert ask(emulator, "web-0", method="HEAD") == 200
    assert ask(emulator, "web-0", data=body) == 200
    assert ask(emulator, "web-0", data=b"{") == 400
    assert ask(emulator, "nobody") == 404

    scrape = Scrape(emulator)
    assert scrape("forewarn_polls_total", api_version=NEWEST.name) == 2
    assert scrape("forewarn_polls_total", api_version="2019-08-01") == 1
    assert scrape("forewarn_metadata_posts_total") == 2
    assert scrape("forewarn_metadata_refusals_total", status="400") == 1
    assert scrape("forewarn_metadata_refusals_total", status="404") == 1


def test_what_operators_are_refused_is_counted_by_the_kind_of_problem(emulator: Emulator) -> None:
    assert "forewarn_control_refusals" in Scrape(emulator).families

    refused = (("api/v1/clock", "GET"), ("api/v1/events", "POST"), ("api/v1/nothing", "GET"))
    for path, method in refused:
        with pytest.raises(HTTPError, match="401"):
            urlopen(Request(f"{emulator.control_url}/{path}", method=method), timeout=TIMEOUT)

    scrape = Scrape(emulator)
    assert scrape("forewarn_control_refusals_total", problem="unauthorized") == 3
    assert len(scrape.families["forewarn_control_refusals"].samples) == 1


def test_plain_polls_are_counted_like_the_others() -> None:
    # Found by address and without a prefix, which is the short way through the server.
    fleet = {"virtual_machine": [{"name": "web-0", "addresses": ["127.0.0.1"]}]}
    with Emulator(fleet) as emulator:
        url = f"http://{emulator.address}/metadata/scheduledevents?api-version={NEWEST.name}"
        for _ in range(3):
            with urlopen(Request(url, headers={"Metadata": "true"}), timeout=TIMEOUT):
                pass

        assert Scrape(emulator)("forewarn_polls_total", api_version=NEWEST.name) == 3


def test_parked_poll_is_a_parked_poll(emulator: Emulator) -> None:
    emulator.vm("web-0").reboot()
    waiting = {"Prefer": "wait=300", "If-None-Match": "1"}
    parked = threading.Thread(target=ask, args=(emulator, "web-0"), kwargs={"headers": waiting})

    parked.start()
    deadline = time.monotonic() + TIMEOUT
    while Scrape(emulator)("forewarn_parked_polls") != 1:
        assert time.monotonic() < deadline, "the poll is parked"
    emulator.vm("web-0").reboot()
    parked.join(TIMEOUT)

    assert not parked.is_alive()
    assert Scrape(emulator)("forewarn_parked_polls") == 0


def test_number_of_series_is_the_same_for_a_thousand_virtual_machines(emulator: Emulator) -> None:
    fleet = {"virtual_machine": [{"name": f"vm-{number}"} for number in range(1000)]}
    with Emulator(fleet) as large:
        Scrape(large)  # with which counting begins
        for number in range(0, 1000, 10):
            large.vm(f"vm-{number}").freeze()
        large.clock.advance(hours=1)

        scrape = Scrape(large)

        assert scrape("forewarn_virtual_machines") == scrape("forewarn_delivery_scopes") == 1000
        assert (
            scrape("forewarn_events_ended_total", event_type="Freeze", outcome="succeeded") == 100
        )
        assert scrape.samples.keys() == Scrape(emulator).samples.keys()


def test_writes_and_the_lease_are_in_the_figures(emulator: Emulator) -> None:
    before = Scrape(emulator)
    emulator.vm("web-0").reboot()
    after = Scrape(emulator)

    assert after("forewarn_store_group_size_sum") > before("forewarn_store_group_size_sum")
    assert after("forewarn_store_group_size_count") <= after("forewarn_store_group_size_sum")
    assert after("forewarn_store_writable") == after("forewarn_store_readable") == 1
    assert after("forewarn_lease_epoch") == after("forewarn_leader") == 1


def test_findings_are_counted_by_check_and_verdict(emulator: Emulator) -> None:
    before = Scrape(emulator)
    headers = {"Authorization": f"Bearer {emulator.token}"}
    url = f"{emulator.control_url}/api/v1/server/pause"
    with urlopen(Request(url, method="POST", headers=headers), timeout=TIMEOUT) as answer:
        assert answer.status == 200
    after = Scrape(emulator)

    assert before("forewarn_findings", check="pause", verdict="warn") == 0
    assert after("forewarn_findings", check="pause", verdict="warn") == 1
    assert after("forewarn_findings", check="scheduler lease", verdict="fail") == 0


def test_distribution_counts_up_to_and_including_each_bound() -> None:
    seen = Distribution((1, 5))

    for value in (0.5, 1, 1.5, 5, 6):
        seen.observe(value)

    assert seen.counts == (2, 2, 1)
    assert seen.total == 14


def export_from(store: SqliteStore, tally: Tally, epoch: Callable[[], int]) -> Callable[[], bytes]:
    return exporter(
        FigureSources(
            version="1",
            store=store,
            wall=SystemClock(),
            topology=lambda: Topology(virtual_machines={}, scopes={}, hosts={}),
            tally=tally,
            parked=lambda: 0,
            watchers=lambda: 0,
            followers=lambda: 0,
            lateness=Distribution(()),
            epoch=epoch,
            discovered=tuple,
            is_paused=lambda: False,
            maintenances=dict,
            endings={},
            occurrences={},
            loop_failures={},
            gates_shut=lambda: 0,
            jumps=lambda: 0,
            clock_offset=timedelta,
            expires_at=lambda: None,
            refused={},
            replicas=SoleReplica(store, ITSELF, now=SystemClock().now),
            findings=lambda *_: (),
        )
    )


def test_lease_that_is_gained_meanwhile_is_told_whole_or_not_at_all(tmp_path: Path) -> None:
    with closing(open_sqlite(tmp_path / "forewarn.db")) as store:
        gained = store.write(lambda tx: tx.next_epoch())
        epochs = chain([0], repeat(gained))
        export = export_from(store, Tally(), epochs.__next__)

        before, after = export().decode(), export().decode()

    assert "forewarn_lease_epoch 0.0" in before
    assert "forewarn_leader 0.0" in before
    assert f"forewarn_lease_epoch {gained}.0" in after
    assert "forewarn_leader 1.0" in after


def test_what_is_in_memory_is_told_when_the_database_is_away(tmp_path: Path) -> None:
    store = open_sqlite(tmp_path / "forewarn.db")
    tally = Tally()
    export = export_from(store, tally, lambda: 1)
    tally.polls["2020-07-01"] += 7
    store.close()

    with capture_logs() as logs:
        text = export().decode()
        export()

    assert [line["event"] for line in logs] == ["metrics_incomplete"], "once is enough"
    assert 'forewarn_polls_total{api_version="2020-07-01"} 7.0' in text
    assert "forewarn_store_readable 0.0" in text
    assert 'forewarn_findings{check="writes",verdict="fail"} 0.0' in text
    assert "forewarn_events_in_flight" not in text
