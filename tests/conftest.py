"""What every suite shares: signals as usual, --no-skips, --repeat, and hypothesis' profiles."""

import gc
import logging
import signal
from collections.abc import Generator
from pathlib import Path

import pytest
import structlog
from hypothesis import HealthCheck, settings
from tests.docs.blocks import Block, find_claimed
from tests.needs import fold_skip
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

TESTS = Path(__file__).parent

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


PROCESSES = ("bench", "browser", "conformance", "contrib", "e2e", "examples", "executors", "hooks")
"""Folders whose tests start processes: with --repeat, a test that fails gets a second try."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--no-skips", action="store_true", help="a test that is skipped has failed")
    parser.addoption(
        "--repeat", action="store_true", help="repeat a failed test that starts processes once"
    )
    parser.addoption(
        "--update-golden", action="store_true", help="rewrite the files of tests/cli/golden"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--repeat"):
        for item in items:
            if item.path.relative_to(TESTS).parts[0] in PROCESSES:
                # A test that was stopped by its limit would have none when it is repeated.
                item.add_marker(pytest.mark.flaky(reruns=1, rerun_except=[r"Timeout \(>"]))
    if config.getoption("--timeout") == 0:  # `make soak` gives the limits of single tests up, too
        for item in items:
            item.add_marker(pytest.mark.timeout(0), append=False)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Tell why tests had to be repeated, and name them in a last line."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or not (repeated := reporter.getreports("rerun")):
        return
    for report in repeated:
        reporter.line(f"repeated: {report.nodeid}: {report.longreprtext.strip()[-500:]}")
    failed = {
        report.nodeid for report in (*reporter.getreports("failed"), *reporter.getreports("error"))
    }
    if flaky := {report.nodeid for report in repeated} - failed:
        reporter.line(f"flaky: {' '.join(sorted(flaky))}")


@pytest.fixture(scope="module", autouse=True)
def _logs_of_its_own() -> Generator[None]:
    """Undo what a module has configured: its stream may be closed, and its level is its own."""
    root = logging.getLogger()
    level, handlers = root.level, root.handlers[:]
    yield
    structlog.reset_defaults()
    root.setLevel(level)
    root.handlers[:] = handlers


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
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    fold_skip(report, call)
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
