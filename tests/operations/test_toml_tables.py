"""What the tables of an operator's files may say of an address."""

import pytest
from pydantic import TypeAdapter, ValidationError

from forewarn.operations.toml_tables import Address

ADDRESS = TypeAdapter[str](Address)


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:8080/hook",
        "http://[::1]:8080/hook",
        "https://user:p%2Fass@hooks.example/a?b=c",
        "https://bücher.example/",
    ],
)
def test_address_with_a_host_is_taken(url: str) -> None:
    assert ADDRESS.validate_python(url) == url


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("ftp://hooks.example/", "begins with http"),
        ("hooks.example", "begins with http"),
        ("https://user:SECRET/PASS@hooks.example/", "host or port is invalid"),
        ("https://../", "host or port is invalid"),
        ("https://:80/", "host or port is invalid"),
        ("https://hooks.example:99999/", "host or port is invalid"),
        ("https://hooks.example:0/", "host or port is invalid"),
        ("https://[::1/", "host or port is invalid"),
    ],
)
def test_address_that_leads_nowhere_is_refused_without_its_secrets(url: str, problem: str) -> None:
    with pytest.raises(ValidationError, match=problem) as refused:
        ADDRESS.validate_python(url)

    (error,) = refused.value.errors(include_input=False, include_url=False)
    assert "SECRET" not in error["msg"]
