"""Findings that other releases have written."""

from forewarn.domain.finding import FindingVerdict, doubtful, read_finding


def test_finding_of_a_newer_release_is_read() -> None:
    row = {"check": "moon", "verdict": "eclipsed", "sentence": "It is dark.", "page": "moon.md"}

    found = read_finding(row)

    assert found == doubtful("moon", "It is dark.", "")
    assert read_finding({**row, "verdict": "ok"}).verdict is FindingVerdict.OK
