"""Every block of README, tutorials and how-tos is run, here or by the test named above it."""

from pathlib import Path

import pytest
from tests.docs.blocks import PAGES, ROOT, Block, read_blocks
from tests.docs.named_tests import find_tests
from tests.docs.walks import walking

BLOCKS = [block for page in PAGES for block in read_blocks(page)]
CLAIMED = [block for block in BLOCKS if block.claim]
WALKED = [page for page in PAGES if any(not block.claim for block in read_blocks(page))]


@pytest.mark.parametrize("page", WALKED, ids=lambda page: str(page.relative_to(ROOT)))
def test_page_does_what_it_says(page: Path, tmp_path: Path) -> None:
    with walking(tmp_path) as walk:
        for block in read_blocks(page):
            if not block.claim:
                walk.follow(block)


@pytest.mark.parametrize("block", CLAIMED, ids=lambda block: block.place)
def test_test_that_is_named_above_a_block_exists(block: Block) -> None:
    path, _, name = (block.claim or "").partition("::")

    assert (ROOT / path).is_file(), f"{block.place}: {path} does not exist"
    assert not name or block.claim in find_tests([path]), f"{block.place}: no test is {name}"


@pytest.mark.parametrize(
    ("language", "text", "reason"),
    [
        ("toml", 'name = "web-0"\n', "name the file that this is"),
        ("console", "$ echo web-0\nweb-1\n", "printed"),
        ("console", "$ false\n", "ended with 1"),
        ("sh", "false\ntrue\n", "ended with 1"),
    ],
)
def test_block_that_does_not_do_what_it_says_is_refused(
    language: str, text: str, reason: str, tmp_path: Path
) -> None:
    block = Block(page=ROOT / "README.md", line=1, language=language, text=text, claim=None)

    with walking(tmp_path) as walk, pytest.raises(AssertionError, match=reason):
        walk.follow(block)
