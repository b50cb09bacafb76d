"""Say which links, pictures and anchors of a built site lead nowhere, and which pages are lost.

`make docs` runs it on site/. Links to other servers are not followed.
"""

import sys
from collections.abc import Iterator, Mapping
from html.parser import HTMLParser
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urljoin, urlsplit

SITE: Final = Path(__file__).parent.parent / "site"
HERE: Final = "http://site"
REFERENCES: Final = {"a": "href", "img": "src", "link": "href", "script": "src", "source": "srcset"}
APART: Final = "/404.html"
"""A page that servers show by themselves."""


class BuiltPage(HTMLParser):
    """Collect what one page refers to, and what can be referred to in it."""

    def __init__(self) -> None:
        """Begin with a page that is empty."""
        super().__init__()
        self.references: set[str] = set()
        self.anchors = {""}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Take in what *tag* refers to, and its id."""
        known = dict(attrs)
        if target := known.get(REFERENCES.get(tag, "")):
            self.references.add(target)
        if name := known.get("id"):
            self.anchors.add(name)


def main() -> int:
    """Check the site at the first argument, or at site/."""
    problems = find_problems(Path(sys.argv[1]) if sys.argv[1:] else SITE)
    for problem in problems:
        print(problem)
    return 1 if problems else 0


def find_problems(site: Path) -> list[str]:
    """Return a sentence for everything that is wrong with *site*."""
    pages = {_address(path, site): _read(path) for path in sorted(site.rglob("*.html"))}
    return [*_dead_links(pages, site), *_lost_pages(pages)]


def _address(path: Path, site: Path) -> str:
    return "/" + str(path.relative_to(site)).removesuffix("index.html")


def _read(path: Path) -> BuiltPage:
    page = BuiltPage()
    page.feed(path.read_text(encoding="utf-8"))
    return page


def _targets(address: str, page: BuiltPage) -> Iterator[tuple[str, str]]:
    """Yield the path and the anchor of everything on this site that *page* refers to."""
    for reference in sorted(page.references):
        target = urlsplit(urljoin(HERE + address, reference))
        if f"{target.scheme}://{target.netloc}" == HERE:
            yield unquote(target.path), unquote(target.fragment)


def _dead_links(pages: Mapping[str, BuiltPage], site: Path) -> Iterator[str]:
    for address, page in pages.items():
        if address == APART:
            continue
        for path, anchor in _targets(address, page):
            if path in pages:
                if anchor not in pages[path].anchors:
                    yield f"{address}: {path} has no heading #{anchor}"
            elif not (site / path.lstrip("/")).is_file():
                yield f"{address}: {path} does not exist"


def _lost_pages(pages: Mapping[str, BuiltPage]) -> Iterator[str]:
    linked = {
        path
        for address, page in pages.items()
        for path, _ in _targets(address, page)
        if path != address
    }
    for address in sorted(pages.keys() - linked - {APART}):
        yield f"{address}: no other page leads here; add it to nav in mkdocs.yml"


if __name__ == "__main__":
    sys.exit(main())
