"""What the environment says about the metadata server."""

import pytest

from forewarn.client._endpoints import Endpoint
from forewarn.client._environment import read_environment
from forewarn.client._errors import EndpointError


@pytest.mark.parametrize(
    ("environment", "endpoint"),
    [
        ({}, None),
        ({"FOREWARN_METADATA": "", "SCHEDULEDEVENTSIP": ""}, None),
        ({"SCHEDULEDEVENTSIP": "168.63.129.16"}, Endpoint(host="168.63.129.16")),
        (
            {"FOREWARN_METADATA": "127.0.0.1:8169", "SCHEDULEDEVENTSIP": "168.63.129.16"},
            Endpoint(host="127.0.0.1", port=8169),
        ),
        (
            {"FOREWARN_METADATA": "http://127.0.0.1:8169/vm/web-0"},
            Endpoint(host="127.0.0.1", port=8169, prefix="/vm/web-0"),
        ),
        (
            {"FOREWARN_METADATA": "", "SCHEDULEDEVENTSIP": "10.0.0.4"},
            Endpoint(host="10.0.0.4"),
        ),
    ],
)
def test_environment_names_the_endpoint(
    environment: dict[str, str], endpoint: Endpoint | None
) -> None:
    assert read_environment(environment) == endpoint


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("FOREWARN_METADATA", "https://metadata"),
        ("FOREWARN_METADATA", " "),
        ("SCHEDULEDEVENTSIP", "168.63.129.16:80"),
        ("SCHEDULEDEVENTSIP", "metadata.example"),
    ],
)
def test_variable_that_is_no_endpoint_is_an_error_that_names_it(name: str, text: str) -> None:
    with pytest.raises(EndpointError, match=f"^Invalid environment variable {name}: ") as caught:
        read_environment({name: text})

    assert repr(text) in str(caught.value)
