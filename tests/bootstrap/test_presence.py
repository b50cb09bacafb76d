"""A replica among others: what they must agree on, and how long they are known."""

import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
import pytest
from structlog.testing import capture_logs
from tests.postgres import SECONDS, run_cluster, set_clock_ahead
from tests.waiting import wait_until
from tests.web_site import OUTBOUND

from forewarn.bootstrap.address import public_url
from forewarn.bootstrap.database import OpenDatabase, open_database
from forewarn.bootstrap.presence import (
    check_agreement,
    heart_beating,
    introduce,
    longest_history,
)
from forewarn.bootstrap.replica import Outside, assemble
from forewarn.bootstrap.server import take_over
from forewarn.bootstrap.start import begin
from forewarn.bootstrap.supervision import Supervisor
from forewarn.files.fleet import FleetError, examine_fleet
from forewarn.files.toml import decode
from forewarn.settings import make_settings

NOW = datetime(2026, 1, 5, 8, tzinfo=UTC)
WRONG_FLEET = """
[[virtual-machines]]
name = "web-1"
nonsense = true
"""


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@contextmanager
def opened(url: str, **values: object) -> Iterator[OpenDatabase]:
    settings = make_settings({"database": url, **values})
    with socket.create_server(("127.0.0.1", 0)) as control:
        itself = introduce(settings, public_url(settings, control))
    with open_database(settings, itself) as database:
        yield database


def test_replica_says_who_it_is_until_it_is_closed(postgres_url: str) -> None:
    with opened(postgres_url, control="0.0.0.0:8170") as one, opened(postgres_url) as other:
        found = other.replicas.call_roll().replicas
        mine = one.replicas.itself
    with opened(postgres_url) as last:
        (only,) = last.replicas.call_roll().replicas

    assert len(found) == 2
    assert mine.name == socket.gethostname()
    assert mine.address.startswith(f"http://{mine.name}:")
    assert only.identity.replica_id not in {each.identity.replica_id for each in found}


def test_servers_measure_real_time_by_the_clock_that_they_share(postgres_url: str) -> None:
    """Otherwise one whose clock is ahead takes replicas that are there for lost."""
    set_clock_ahead(postgres_url, minutes=20)
    with opened(postgres_url) as database:
        at = database.replicas.call_roll().at
        beginning = take_over(database, make_settings({"database": postgres_url}), None)
        outside = Outside(outbound=OUTBOUND, wall=database.wall)
        made = assemble(make_settings({}), database.store, beginning, outside)

        assert abs(made.context("ops").at - at) < timedelta(minutes=1)


def test_maintenance_time_stays_within_the_tolerance_of_the_clock_that_servers_share(
    postgres_url: str,
) -> None:
    """So a clock that is off starts no event early, and shortens no notice."""
    set_clock_ahead(postgres_url, minutes=20)
    shared = make_settings({"database": postgres_url, "clock_tolerance": "5s"})
    with opened(postgres_url) as database:
        beginning = take_over(database, shared, None)
        outside = Outside(outbound=OUTBOUND, wall=database.wall)
        context = assemble(shared, database.store, beginning, outside).context("ops")

    assert context.at - context.now == timedelta(seconds=5)


def test_time_of_the_database_goes_on_while_the_machine_sleeps(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise an event announced just after a suspend has its notice in the past."""
    with opened(postgres_url) as database:
        before = database.wall.now()
        awake = time.clock_gettime(time.CLOCK_BOOTTIME)
        monkeypatch.setattr(time, "clock_gettime", lambda _: awake + 1200)

        assert database.wall.now() - before > timedelta(minutes=19)


def test_replica_reports_by_itself(postgres_url: str) -> None:
    with opened(postgres_url) as database, heart_beating(database.replicas, Supervisor()):
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            connection.execute("DELETE FROM replicas")

        wait_until(lambda: database.replicas.call_roll().replicas, "the next report")


def test_settings_that_differ_are_logged(postgres_url: str) -> None:
    with (
        opened(postgres_url),
        opened(postgres_url, speed=2, notice="when-enabled") as late,
        capture_logs() as lines,
    ):
        check_agreement(late.replicas)

    said = [line["settings"] for line in lines if line["event"] == "settings_differ"]
    assert said == [["notice", "speed"]]


def test_single_replica_of_a_file_agrees_with_itself(tmp_path: Path) -> None:
    with opened(str(tmp_path / "forewarn.db")) as database:
        check_agreement(database.replicas)

    assert database.place == str(tmp_path / "forewarn.db")


def test_replica_that_loses_the_database_before_it_serves_waits_for_it() -> None:
    with (
        run_cluster() as cluster,
        opened(url := cluster.new_database()) as database,
        ThreadPoolExecutor(1) as pool,
        capture_logs() as lines,
    ):
        cluster.stop("immediate")
        beginning = pool.submit(take_over, database, make_settings({"database": url}), None)
        wait_until(
            lambda: any(line["event"] == "waiting_for_database" for line in lines), "the wait"
        )
        cluster.start()

        assert beginning.result(SECONDS).token


def test_replica_that_has_the_admin_token_finds_it_when_it_starts_again(
    postgres_url: str, tmp_path: Path
) -> None:
    here, elsewhere = (
        make_settings({"database": postgres_url, "state_dir": str(tmp_path / name)})
        for name in ("here", "elsewhere")
    )
    with opened(postgres_url) as database, capture_logs() as lines:
        made = begin(database.store, here, None, NOW).token
        again = begin(database.store, here, None, NOW).token
        before = [line["event"] for line in lines]
        other = begin(database.store, elsewhere, None, NOW).token

    assert made == again != ""
    assert other == ""
    assert "admin_token_elsewhere" not in before
    assert "admin_token_elsewhere" in [line["event"] for line in lines]


def test_fleet_file_is_checked_before_others_have_to_wait_for_it(postgres_url: str) -> None:
    settings = make_settings({"database": postgres_url})
    fleet = examine_fleet(decode(WRONG_FLEET))
    with opened(postgres_url) as database, psycopg.connect(postgres_url) as writing:
        writing.execute("SELECT 1 FROM write_lock FOR UPDATE")

        with pytest.raises(FleetError):
            begin(database.store, settings, fleet, NOW)


def test_longest_history_retention_of_all_replicas_counts(postgres_url: str) -> None:
    """A replica that keeps less, or is alone for a moment, forgets nothing of the others'."""
    with opened(postgres_url, history_retention="30d") as one:
        alone = longest_history(one.replicas)
        with opened(postgres_url, history_retention="90d"):
            of_two = longest_history(one.replicas)
            with opened(postgres_url):
                of_three = longest_history(one.replicas)

    assert (alone, of_two, of_three) == (timedelta(days=30), timedelta(days=90), None)


def test_server_on_a_file_has_its_own_history_retention(tmp_path: Path) -> None:
    with opened(f"sqlite:///{tmp_path}/forewarn.db", history_retention="30d") as database:
        assert longest_history(database.replicas) == timedelta(days=30)
