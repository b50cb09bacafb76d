"""What every suite shares: signals as usual, no silent skips in CI, and hypothesis' profiles."""

import gc
import logging
import signal
import sys
import threading
from collections.abc import Generator
from functools import cache
from itertools import chain

import pytest
import structlog
from hypothesis import HealthCheck, settings
from tests.docs.blocks import Block, find_claimed
from tests.postgres import Cluster, run_cluster

settings.register_profile("default", deadline=None, derandomize=True)
settings.register_profile(
    "soak",
    deadline=None,
    derandomize=False,
    max_examples=1_000,
    stateful_step_count=100,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("default")

# Under nohup, or in the background of a script, these are ignored, and so by every child that a
# test sends them to.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

# Thousands of tests are collected, none of which is ever garbage; to look through them all the time
# took minutes.
gc.disable()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


_TRACED = (
    "bootstrap/test_presence.py",
    "cli/test_output.py",
    "cli/test_settings.py",
    "contracts/",
    "files/",
    "front/",
    "gates/",
    "http/control/test_fleet.py",
    "http/control/test_hosts.py",
    "http/control/test_origins.py",
    "http/control/test_scenarios.py",
    "http/metadata/",
    "notifications/",
    "operations/",
    "outbound/",
    "properties/test_controls.py",
    "scheduler/",
    "storage/",
    "unit/",
    "wording/",
)
"""Tests that full coverage depends on; to trace all takes minutes."""
_UNTRACED = (
    "http/metadata/test_board.py::test_fleet_of_100_000_is_learned_at_once",
    "http/metadata/test_crowd.py",
)
"""Those among them that measure how long something takes."""
_REMEMBERING = type(cache(lambda: None))


def _is_traced(nodeid: str) -> bool:
    name = nodeid.removeprefix("tests/")
    return name.startswith(_TRACED) and not name.startswith(_UNTRACED)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Trace only those. The mark of pytest-cov does not do that in processes of xdist."""
    if _is_traced(item.nodeid):
        return (yield)
    here, elsewhere = sys.gettrace(), threading.gettrace()
    sys.settrace(None)
    threading.settrace(None)
    try:
        return (yield)
    finally:
        sys.settrace(here)
        threading.settrace(elsewhere)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--no-skips", action="store_true", help="a test that is skipped has failed")
    parser.addoption(
        "--update-golden", action="store_true", help="rewrite the files of tests/cli/golden"
    )


@pytest.fixture(scope="module", autouse=True)
def _logs_of_its_own() -> Generator[None]:
    """Undo what a module has configured: its stream may be closed, and its level is its own."""
    root = logging.getLogger()
    level, handlers = root.level, root.handlers[:]
    yield
    structlog.reset_defaults()
    root.setLevel(level)
    root.handlers[:] = handlers


@pytest.fixture(scope="module", autouse=True)
def _nothing_remembered(request: pytest.FixtureRequest) -> None:
    """Clear caches before a traced module: tests that are not traced may have filled them."""
    if _is_traced(request.node.nodeid):
        ours = [module for name, module in sys.modules.items() if name.startswith("forewarn.")]
        for each in chain.from_iterable(vars(module).values() for module in ours):
            if isinstance(each, _REMEMBERING):
                each.cache_clear()


@pytest.fixture
def blocks(request: pytest.FixtureRequest) -> list[Block]:
    """The code blocks of the documentation that name this test as the one that runs them."""
    found = find_claimed(request.node.nodeid.partition("[")[0])
    assert found, "no page names this test"
    return found


@pytest.fixture(scope="session")
def postgres() -> Generator[Cluster]:
    """A PostgreSQL server that tests share; whoever stops one runs a cluster of its own."""
    with run_cluster() as cluster:
        yield cluster


@pytest.fixture
def postgres_url(postgres: Cluster) -> Generator[str]:
    """The URL of a new PostgreSQL database that has the schema."""
    with postgres.lend() as url:
        yield url


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.skipped and not hasattr(report, "wasxfail") and item.config.getoption("--no-skips"):
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} was skipped: {report.longrepr}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    if report.skipped and collector.config.getoption("--no-skips"):
        report.outcome = "failed"
        report.longrepr = f"{collector.nodeid} was skipped: {report.longrepr}"
    return report
