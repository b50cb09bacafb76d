import pytest

from forewarn.domain.errors import InvalidNameError
from forewarn.domain.names import check_name, name_key


@pytest.mark.parametrize("name", ["a", "0", "_web", "web-0", "FrontEnd_IN_0", "kvm.lan", "n" * 128])
def test_name_that_needs_no_quoting_is_accepted(name: str) -> None:
    check_name(name, "virtual machine")


@pytest.mark.parametrize(
    "name",
    ["", "-web", ".web", "web 0", "web/0", "web\n", "web;ls", "$web", "wéb", "n" * 129],
)
def test_name_that_would_need_quoting_is_refused(name: str) -> None:
    with pytest.raises(InvalidNameError) as refusal:
        check_name(name, "host")

    assert (refusal.value.noun, refusal.value.name) == ("host", name)


def test_names_compare_in_any_case() -> None:
    assert name_key("Web-0") == name_key("wEB-0")


def test_different_names_stay_different() -> None:
    assert name_key("web-0") != name_key("web_0")
