"""Names of HTTP statuses."""

from http import HTTPStatus

import pytest

from forewarn.wording.statuses import name_of_status


@pytest.mark.parametrize(
    ("status", "name"),
    [
        (404, "Not Found"),
        (413, "Content Too Large"),
        (414, "URI Too Long"),
        (416, "Range Not Satisfiable"),
        (422, "Unprocessable Content"),
    ],
)
def test_name_is_the_same_on_every_python(status: int, name: str) -> None:
    assert name_of_status(HTTPStatus(status)) == name
