"""The site of the documentation can be built, is complete, and its links lead somewhere."""

import re
from pathlib import Path

import pytest
from tests.docs.blocks import ROOT
from tests.docs.building import build_site

from check_site import find_problems


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_site(tmp_path_factory.mktemp("site"))


def test_every_link_of_the_site_leads_somewhere(site: Path) -> None:
    assert find_problems(site) == []


def test_every_page_is_in_the_navigation() -> None:
    nav = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
    named = re.findall(r": (\S+\.md)$", nav, re.MULTILINE)

    assert sorted(named) == sorted(
        str(page.relative_to(ROOT / "docs")) for page in ROOT.glob("docs/**/*.md")
    )


def test_page_has_highlighting_and_an_edit_link(site: Path) -> None:
    page = (site / "how-to" / "patch-your-hosts" / "index.html").read_text(encoding="utf-8")

    assert '<span class="gp">$ </span>' in page
    assert (
        'href="https://git.example.org/forewarn/edit/main/docs/how-to/patch-your-hosts.md"' in page
    )


def test_search_knows_the_pages(site: Path) -> None:
    assert "update domain" in (site / "search.json").read_text(encoding="utf-8")


def test_pages_load_nothing_from_other_servers(site: Path) -> None:
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        assert not re.findall(r"<(?:script|img|source)[^>]+(?:src|srcset)=\"?https?:", text), page
        assert not re.findall(r"<link[^>]+stylesheet[^>]+href=\"?https?:", text), page


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ('<a href="gone/">', "/: /gone/ does not exist"),
        ('<a href="other/#nowhere">', "/: /other/ has no heading #nowhere"),
        ('<img src="gone.png"><a href="other/">', "/: /gone.png does not exist"),
        ("", "/other/: no other page leads here; add it to nav in mkdocs.yml"),
    ],
)
def test_what_leads_nowhere_is_named(body: str, problem: str, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "index.html").write_text(body)
    (tmp_path / "other" / "index.html").write_text('<h1 id="title"><a href="..">')

    assert problem in find_problems(tmp_path)
