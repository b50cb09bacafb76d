"""Every defence of the threat model has a test behind it."""

from tests.docs.named_tests import NAMED, ROOT, find_tests

ATTACKERS = ("guest", "neighbor", "SSRF", "operator", "stolen token", "hostile folder")


def test_every_attacker_is_described() -> None:
    page = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    headings = [line for line in page.splitlines() if line.startswith("### ")]

    assert len(headings) == len(ATTACKERS)
    for attacker, heading in zip(ATTACKERS, headings, strict=True):
        assert attacker in heading


def test_every_defence_names_tests_that_exist() -> None:
    page = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| ") and "| test |" not in line]

    assert len(rows) > 20
    for row in rows:
        named = {f"tests/{name}" for name in NAMED.findall(row)}
        assert named, f"nothing is behind: {row}"
        missing = named - find_tests({name.partition("::")[0] for name in named})
        assert not missing, f"there is no {missing}"
