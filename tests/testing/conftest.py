"""How many emulators there are in the test that counts what stays of them."""

import pytest

EMULATORS = 150


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--emulators", type=int, default=EMULATORS, help="how many emulators come and go"
    )


@pytest.fixture
def emulators(pytestconfig: pytest.Config) -> int:
    # Without tests/testing on the command line the option is declared after it was read.
    return int(pytestconfig.getoption("emulators", default=EMULATORS))
