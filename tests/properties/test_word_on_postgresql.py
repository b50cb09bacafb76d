"""What an operator's word does to what hangs, on PostgreSQL: the tests are those of SQLite."""

from collections.abc import Iterator
from contextlib import closing

import pytest
from tests.operations.test_word_of_an_operator import (
    impacts_only,
    make_roll_out,
    roll_out,
    test_aborting_withdraws_what_is_reserved_and_waits_for_the_rest,
    test_completed_event_stays_started_until_the_turn_of_its_host_is_over,
    test_completed_event_without_host_work_ends_and_its_task_keeps_the_machine_busy,
    test_event_of_a_host_whose_turn_was_ended_ends_when_nothing_of_it_runs,
    test_event_that_is_completed_as_failed_fails_its_host,
    test_retry_is_refused_until_nothing_runs_and_gives_full_notice_then,
)
from tests.postgres import Cluster

from forewarn.ports.store import Store
from forewarn.storage.postgres import open_postgres

__all__ = [
    "impacts_only",
    "make_roll_out",
    "roll_out",
    "test_aborting_withdraws_what_is_reserved_and_waits_for_the_rest",
    "test_completed_event_stays_started_until_the_turn_of_its_host_is_over",
    "test_completed_event_without_host_work_ends_and_its_task_keeps_the_machine_busy",
    "test_event_of_a_host_whose_turn_was_ended_ends_when_nothing_of_it_runs",
    "test_event_that_is_completed_as_failed_fails_its_host",
    "test_retry_is_refused_until_nothing_runs_and_gives_full_notice_then",
]


@pytest.fixture(scope="module")
def lent_url(postgres: Cluster) -> Iterator[str]:
    with postgres.lend() as url:
        yield url


@pytest.fixture
def word_store(postgres: Cluster, lent_url: str) -> Iterator[Store]:
    postgres.renew(lent_url)
    with closing(open_postgres(lent_url, node="a")) as store:
        yield store
