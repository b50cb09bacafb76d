"""PostgreSQL for benchmarks: the servers of the tests, but with a disk that is waited for."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from smoke import skip

sys.path.append(str(Path(__file__).parents[1]))

from tests.postgres import Cluster, run_cluster

__all__ = ["Cluster", "durable_cluster"]


@contextmanager
def durable_cluster() -> Iterator[Cluster | None]:
    """Run a server that loses nothing; None, and the part is skipped, if none is installed."""
    settings = {"fsync": "on", "full_page_writes": "on", "max_wal_size": "4GB"}
    try:
        with run_cluster(**settings) as cluster:
            yield cluster
    except pytest.skip.Exception as reason:
        skip(str(reason))
        yield None
