"""The code blocks of the pages for users, and which test runs each.

A block is run by `tests/docs/test_walks.py`, from the top of its page to the end, unless the line
above it names what runs it instead:

    <!-- run by tests/e2e/test_tls.py::test_commands_trust_the_authority_they_are_given -->

The same line with `blocks run by`, once on a page, is for all of its blocks. A test that is named
gets its blocks from the fixture `blocks`, or reads the page itself; it may change what differs in a
test, such as addresses and folders, and nothing else.

What a page takes for granted, such as a server that is running, is a command that readers do not
see:

    <!-- $ forewarn serve --fleet fleet.toml --detach -->
"""

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
PAGES: Final = [
    ROOT / "README.md",
    ROOT / "docs" / "index.md",
    *sorted(ROOT.glob("examples/**/README.md")),
    *sorted(ROOT.glob("docs/tutorials/*.md")),
    *sorted(ROOT.glob("docs/how-to/*.md")),
]
SHOWN_ONLY: Final = frozenset({"json", "text"})
"""Languages of blocks that nobody types or saves."""
_BLOCK: Final = re.compile(
    r"^(?: *<!-- run by (?P<claim>\S+) -->\n+)?"
    r"(?P<indent> *)```(?P<language>\w*)\n(?P<text>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)
_UNSEEN: Final = re.compile(r"^<!-- (?P<text>\$ .*) -->$", re.MULTILINE)
_WHOLE_PAGE: Final = re.compile(r"^<!-- blocks run by (\S+) -->$", re.MULTILINE)
_FILE: Final = re.compile(r"(?:#!.*\n)?(?:#|//|<!--) (?P<name>[\w./-]+)(?: -->)?\n")


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A fenced block of a page."""

    page: Path
    line: int
    language: str
    text: str
    claim: str | None

    @property
    def file(self) -> str | None:
        """The name of the file that the reader saves it as: a comment in its first line."""
        named = _FILE.match(self.text)
        return named["name"] if named and self.language != "console" else None

    @property
    def commands(self) -> list[list[str]]:
        """The words of each command, of a console block."""
        typed = (command for command, _ in read_commands(self.text))
        return [shlex.split(command.replace("\\\n", " ")) for command in typed]

    @property
    def place(self) -> str:
        """Where it is, for people."""
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def read_blocks(page: Path) -> list[Block]:
    """Return the blocks of *page* in order, without those that are only shown."""
    text = page.read_text(encoding="utf-8")
    whole = _WHOLE_PAGE.search(text)
    seen = {
        found.start("indent"): Block(
            page=page,
            line=text.count("\n", 0, found.start("indent")) + 1,
            language=found["language"],
            text=re.sub(rf"^{found['indent']}", "", found["text"], flags=re.MULTILINE),
            claim=found["claim"] or (whole[1] if whole else None),
        )
        for found in _BLOCK.finditer(text)
        if found["language"] not in SHOWN_ONLY or found["claim"] or _FILE.match(found["text"])
    }
    unseen = {
        found.start(): Block(
            page=page,
            line=text.count("\n", 0, found.start()) + 1,
            language="console",
            text=f"{found['text']}\n",
            claim=None,
        )
        for found in _UNSEEN.finditer(text)
    }
    return [block for _, block in sorted((seen | unseen).items(), key=lambda pair: pair[0])]


def find_claimed(claim: str) -> list[Block]:
    """Return the blocks of all pages that *claim*, `path::name`, runs."""
    return [block for page in PAGES for block in read_blocks(page) if block.claim == claim]


def change(text: str, changes: Mapping[str, str]) -> str:
    """Return *text* with what differs in a test."""
    for old, new in changes.items():
        text = text.replace(old, new)
    return text


def read_commands(text: str) -> Iterator[tuple[str, list[str]]]:
    """Yield each command of a console block with the lines that are shown below it."""
    for each in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        lines = each.splitlines()
        last = next(at for at, line in enumerate(lines) if not line.endswith("\\"))
        yield "\n".join(lines[: last + 1]), lines[last + 1 :]
