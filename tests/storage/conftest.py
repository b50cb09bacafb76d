"""Two replicas on one database."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from forewarn.storage.postgres import PostgresStore, open_postgres


@pytest.fixture
def store(postgres_url: str) -> Iterator[PostgresStore]:
    with closing(open_postgres(postgres_url)) as opened:
        yield opened


@pytest.fixture
def replica(postgres_url: str) -> Iterator[PostgresStore]:
    with closing(open_postgres(postgres_url)) as opened:
        yield opened
