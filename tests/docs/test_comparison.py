"""Every claim of the comparison has a test behind it."""

import re

from tests.docs.named_tests import NAMED, ROOT, find_tests

HEADING = ("forewarn", "Microsoft's mock", "AEMM")
PAGE = (ROOT / "docs" / "comparison.md").read_text(encoding="utf-8")
NOTES = dict(re.findall(r"^\[\^(\d+)\]: (.*)$", PAGE, re.MULTILINE))


def rows() -> list[list[str]]:
    lines = [line for line in PAGE.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def claims() -> list[list[str]]:
    return [row for row in rows() if tuple(row[1:]) != HEADING and set(row[0]) != {"-"}]


def test_every_row_has_a_word_on_each() -> None:
    assert len(claims()) > 20
    for row in claims():
        assert len(row) == 4, row
        assert all(row), row


def test_every_claim_of_forewarn_leads_to_a_test_that_exists() -> None:
    for need, claim, _, _ in claims():
        assert claim.startswith("yes"), f"it is not said first: {need}"
        (note,) = re.findall(r"\[\^(\d+)\]", claim)
        named = [f"tests/{name}" for name in NAMED.findall(NOTES[note])]
        assert named, f"nothing is behind: {need}"
        missing = set(named) - find_tests({name.partition("::")[0] for name in named})
        assert not missing, f"there is no {missing}"
