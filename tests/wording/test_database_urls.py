"""Database URLs, shown without their passwords."""

import pytest

from forewarn.wording.database_urls import has_password, hide_passwords


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://u:secret@db/x", "postgresql://u:********@db/x"),
        ("postgresql://u:se:cr@et@db/x", "postgresql://u:********@db/x"),
        ("postgresql://u:se?cret@db/x", "postgresql://u:********@db/x"),
        ("postgresql://u:se/cret@db/x", "postgresql://u:********@db/x"),
        ("postgresql://u:secret@a:1,b:2/x?sslmode=require", None),
        ("postgresql://u:secret@%2Frun/x", "postgresql://u:********@%2Frun/x"),
        ("postgresql://db/x?password=secret&user=u", "postgresql://db/x?password=********&user=u"),
        ("postgresql://db/x?user=u&p%61ssword=secret", None),
        ("postgresql://u:secret@db/x?sslpassword=secret", None),
        ("mysql://u:secret@db", "mysql://u:********@db"),
    ],
)
def test_passwords_are_masked(url: str, shown: str | None) -> None:
    assert "cret" not in hide_passwords(url)
    assert shown is None or hide_passwords(url) == shown
    assert has_password(url)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u@db:5432/x?sslmode=verify-full",
        "postgresql:///x?host=/run&user=me@there",
        "postgresql://db:5432/x?user=me@there",
        "postgresql://db/x?password=",
        "sqlite:///forewarn.db",
        "C:\\forewarn.db",
        "forewarn@home.db",
    ],
)
def test_url_without_a_password_is_shown_as_it_is(url: str) -> None:
    assert hide_passwords(url) == url
    assert not has_password(url)
