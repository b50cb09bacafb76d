"""A real store on a real file, a fleet in it, and an operator."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from itertools import count
from pathlib import Path

import pytest

from forewarn.files.fleet import read_fleet_file
from forewarn.operations.context import Context
from forewarn.operations.inventory import apply_fleet
from forewarn.ports.store import Store
from forewarn.protocol.vocabulary import event_id
from forewarn.storage.sqlite import open_sqlite

FLEET = """
[[availability_set]]
name = "web"
update_domains = 3
postpone_until = "30m"

[[scale_set]]
name = "batch"
terminate_notice = "7m"

[[virtual_machine]]
name = "web-0"
availability_set = "web"
host = "kvm-0"

[[virtual_machine]]
name = "web-1"
availability_set = "web"
host = "kvm-1"

[[virtual_machine]]
name = "batch-0"
scale_set = "batch"
placement_group = "pg1"

[[virtual_machine]]
name = "solo"
"""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = open_sqlite(tmp_path / "forewarn.db")
    yield opened
    opened.close()


@pytest.fixture
def operator() -> Context:
    now = datetime(2026, 1, 5, 8, tzinfo=UTC)
    numbers = count(1)
    return Context(who="alice", now=now, at=now, new_id=lambda: event_id(f"{next(numbers):032x}"))


@pytest.fixture
def fleet(store: Store, operator: Context) -> Store:
    store.write(lambda tx: apply_fleet(tx, operator, read_fleet_file(FLEET)))
    return store


@pytest.fixture
def later(operator: Context) -> Callable[[datetime], Context]:
    return lambda moment: replace(operator, now=moment)
