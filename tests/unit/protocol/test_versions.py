import pytest

from forewarn.protocol.versions import (
    API_VERSIONS,
    NEWEST,
    VERSIONS_BY_NAME,
    ApiVersion,
    DateForm,
    is_well_formed,
)

INITIAL_FIELDS = ("EventId", "EventStatus", "EventType", "ResourceType", "Resources", "NotBefore")
INITIAL_TYPES = {"Freeze", "Reboot", "Redeploy"}
AFTER_PREVIEW = API_VERSIONS[1:]


def test_api_versions_are_listed_oldest_first() -> None:
    assert list(VERSIONS_BY_NAME) == [
        "2017-03-01",
        "2017-08-01",
        "2017-11-01",
        "2019-01-01",
        "2019-04-01",
        "2019-08-01",
        "2020-07-01",
    ]


def test_newest_version_is_the_last_generally_available_one() -> None:
    assert NEWEST.name == "2020-07-01"


@pytest.mark.parametrize(
    ("name", "added"),
    [
        ("2017-03-01", ()),
        ("2017-08-01", ()),
        ("2017-11-01", ()),
        ("2019-01-01", ()),
        ("2019-04-01", ("Description",)),
        ("2019-08-01", ("Description", "EventSource")),
        ("2020-07-01", ("Description", "EventSource", "DurationInSeconds")),
    ],
)
def test_version_has_its_fields_in_the_observed_order(name: str, added: tuple[str, ...]) -> None:
    assert VERSIONS_BY_NAME[name].fields == INITIAL_FIELDS + added


@pytest.mark.parametrize(
    ("name", "added"),
    [
        ("2017-03-01", set()),
        ("2017-08-01", set()),
        ("2017-11-01", {"Preempt"}),
        ("2019-01-01", {"Preempt", "Terminate"}),
        ("2019-04-01", {"Preempt", "Terminate"}),
        ("2019-08-01", {"Preempt", "Terminate"}),
        ("2020-07-01", {"Preempt", "Terminate"}),
    ],
)
def test_version_has_the_event_types_known_when_it_came_out(name: str, added: set[str]) -> None:
    assert VERSIONS_BY_NAME[name].event_types == INITIAL_TYPES | added


def test_preview_writes_iso_dates() -> None:
    assert API_VERSIONS[0].not_before is DateForm.ISO_8601


def test_preview_takes_a_post_without_the_metadata_header() -> None:
    assert not API_VERSIONS[0].metadata_header_on_post


@pytest.mark.parametrize("version", AFTER_PREVIEW, ids=lambda version: version.name)
def test_version_after_the_preview_wants_the_metadata_header_on_post(version: ApiVersion) -> None:
    assert version.metadata_header_on_post


@pytest.mark.parametrize("version", AFTER_PREVIEW, ids=lambda version: version.name)
def test_version_after_the_preview_writes_rfc_dates(version: ApiVersion) -> None:
    assert version.not_before is DateForm.RFC_1123


@pytest.mark.parametrize("name", [*VERSIONS_BY_NAME, "2024-07-09", "2021-02-01", "2099-99-99"])
def test_any_dashed_date_is_a_well_formed_version(name: str) -> None:
    assert is_well_formed(name)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "latest",
        "2017-3-1",
        "20170301",
        "17-03-01",
        "2017/03/01",
        "2020-07-01-preview",
        "v2020-07-01",
        " 2020-07-01",
        "2020-07-01 ",
        "2020-07-01\n",
        "2020-07-01,2020-07-01",
        "\N{ARABIC-INDIC DIGIT TWO}020-07-01",
        "\N{SUPERSCRIPT TWO}020-07-01",
    ],
)
def test_anything_but_a_dashed_date_is_a_malformed_version(name: str) -> None:
    assert not is_well_formed(name)
