"""A replica among others: what they must agree on, and how long they are known."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from structlog.testing import capture_logs
from tests.waiting import wait_until

from forewarn.bootstrap.address import public_url
from forewarn.bootstrap.database import OpenDatabase, open_database
from forewarn.bootstrap.presence import (
    DisagreementError,
    check_agreement,
    heart_beating,
    introduce,
)
from forewarn.bootstrap.supervision import Supervisor
from forewarn.settings import make_settings


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


def test_replica_reports_by_itself(postgres_url: str) -> None:
    with opened(postgres_url) as database, heart_beating(database.replicas, Supervisor()):
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            connection.execute("DELETE FROM replicas")

        wait_until(lambda: database.replicas.call_roll().replicas, "the next report")


def test_other_preview_wire_than_that_of_a_running_replica_is_refused(postgres_url: str) -> None:
    with opened(postgres_url) as running, opened(postgres_url, preview_wire="observed") as late:
        with pytest.raises(DisagreementError) as refused:
            check_agreement(late.replicas)
        running_at = running.replicas.itself

    assert str(refused.value) == (
        f"The replica {running_at.name} at {running_at.address} serves this database with "
        "preview_wire documented, not observed. "
        "Use the same value on all replicas, or stop the others first."
    )


def test_preview_wire_of_replicas_that_are_gone_does_not_count(postgres_url: str) -> None:
    with opened(postgres_url) as killed:
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            connection.execute("UPDATE replicas SET seen_at = seen_at - 11000000")
        with opened(postgres_url, preview_wire="observed") as late:
            check_agreement(late.replicas)
        check_agreement(killed.replicas)


def test_other_settings_that_differ_are_logged(postgres_url: str) -> None:
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
