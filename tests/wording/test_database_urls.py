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
        ("postgresql:/u:secret@db/x", "postgresql:/u:********@db/x"),
        ("u:secret@db/x", "u:********@db/x"),
        ("//u:secret@db/x", "//u:********@db/x"),
        ("host=db password=secret user=u", "host=db password=******** user=u"),
        ("host=db password = 'se \\' cret' user=u", "host=db password = ******** user=u"),
        ("password=secret", "password=********"),
        ("postgresql://db/x?password=se&cret&user=u", "postgresql://db/x?password=********&user=u"),
        ("postgresql://db/x?PASSWORD=secret", "postgresql://db/x?PASSWORD=********"),
        ("postgresql://db/x?passwrd=secret", "postgresql://db/x?passwrd=********"),
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
        "C:\\state@home\\forewarn.db",
        "/srv/shard=7/forewarn.db",
        "postgresql://db/x?passfile=/etc/forewarn.pgpass",
    ],
)
def test_url_without_a_password_is_shown_as_it_is(url: str) -> None:
    assert hide_passwords(url) == url
    assert not has_password(url)


@pytest.mark.parametrize(
    "url", ["host%3Ddb%20password%3Dsecret", "postgresql%3A//u%3Asecret@db/x", "u%3Asecret%40db/x"]
)
def test_password_is_found_in_what_is_encoded(url: str) -> None:
    assert has_password(url)
