"""The variables in which programs find the endpoint."""

import pytest

from forewarn.emulator.variables import endpoint_variables


def test_every_variable_leads_to_the_endpoint() -> None:
    variables = endpoint_variables("http://127.0.0.1:8169/vm/web-0")

    assert all(value.startswith("http://127.0.0.1:8169/vm/web-0") for value in variables.values())
    assert {"FOREWARN_METADATA_URL", "FOREWARN_METADATA"} <= variables.keys()


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("http://169.254.169.254", "169.254.169.254"),
        ("http://169.254.169.254:80", "169.254.169.254"),
        ("http://169.254.169.254:8169", None),
        ("http://169.254.169.254/vm/web-0", None),
        ("http://[::1]", None),
        ("http://localhost", None),
    ],
)
def test_address_alone_is_told_where_it_is_enough(url: str, address: str | None) -> None:
    assert endpoint_variables(url).get("SCHEDULEDEVENTSIP") == address
