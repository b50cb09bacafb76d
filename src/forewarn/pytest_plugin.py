"""The pytest plugin: the fixture `scheduled_events` is an emulator for each test.

It is loaded in every pytest run beside forewarn, so it imports nothing heavy before a fixture is
used. `pip install 'forewarn[pytest]'` brings what the fixtures need.
"""

import sys
from collections.abc import Generator, Iterator
from types import ModuleType

import pytest

_MARK = "scheduled_events"
_EMULATORS = ("scheduled_events", "session_scheduled_events")


def pytest_configure(config: pytest.Config) -> None:
    """Make the mark known."""
    config.addinivalue_line(
        "markers",
        f"{_MARK}(fleet, *, default_vm, now, notice, executor): configure the emulator of the "
        "fixture scheduled_events; same arguments as forewarn.testing.Emulator.",
    )


@pytest.fixture(scope="session")
def scheduled_events_fleet() -> object:
    """Return the fleet that all tests of the session have: override this fixture to name one.

    The text of a fleet file, its path, or the same as a mapping. None: machines are made as asked.
    """
    return None


@pytest.fixture(scope="session")
def _declared_fleet(scheduled_events_fleet: object) -> object:
    """Read the fleet of the session once, however large it is."""
    return _testing().read_any_fleet(scheduled_events_fleet)


@pytest.fixture
def scheduled_events(request: pytest.FixtureRequest, _declared_fleet: object) -> Iterator[object]:
    """Give this test an emulator of its own, running: forewarn.testing.Emulator."""
    mark = request.node.get_closest_marker(_MARK)
    arguments, options = (mark.args, mark.kwargs) if mark else ((), {})
    if not arguments and "fleet" not in options:
        arguments = (_declared_fleet,)
    with _testing().Emulator(*arguments, **options) as emulator:
        yield emulator


@pytest.fixture(scope="session")
def session_scheduled_events(_declared_fleet: object) -> Iterator[object]:
    """Give all tests one emulator, running, for code that lives as long as the session."""
    with _testing().Emulator(_declared_fleet) as emulator:
        yield emulator


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show the documents and the ledger with every test that fails, unless its message does."""
    report = yield
    if report.failed:
        for name in _EMULATORS:
            known = _describe(getattr(item, "funcargs", {}).get(name))
            if not all(line in report.longreprtext for line in known.splitlines()):
                report.sections.append((name.replace("_", " "), known))
    return report


def _describe(emulator: object) -> str:
    """Return what *emulator* knows, nothing if it is none of ours or not running any more."""
    testing = sys.modules.get("forewarn.testing")
    if testing is None or not isinstance(emulator, testing.Emulator) or not emulator.is_running:
        return ""
    return str(emulator.describe())


def _testing() -> ModuleType:
    try:
        from forewarn import testing  # noqa: PLC0415 - not in the base install
    except ImportError as error:
        pytest.fail(str(error), pytrace=False)
    return testing
