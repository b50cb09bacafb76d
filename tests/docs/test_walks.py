"""Every block of README, tutorials and how-tos is run, here or by the test named above it."""

import ast
import re
from pathlib import Path

import pytest
from tests.docs.blocks import PAGES, ROOT, Block, read_blocks, read_commands
from tests.docs.walks import walking
from tests.needs import need

pytestmark = pytest.mark.timeout(300)

BLOCKS = [block for page in PAGES for block in read_blocks(page)]
CLAIMED = [block for block in BLOCKS if block.claim]
WALKED = [page for page in PAGES if any(not block.claim for block in read_blocks(page))]
NEEDED = {"examples/testing/README.md": ("curl", "jq", "node")}
"""Programs that a page has readers install."""
TYPED = re.compile(r"^\$ .*\b(curl|jq|openssl)\b", re.MULTILINE)
"""Programs that readers may not have, in the commands of a page."""


@pytest.mark.parametrize("page", WALKED, ids=lambda page: str(page.relative_to(ROOT)))
def test_page_does_what_it_says(page: Path, tmp_path: Path) -> None:
    walked = [block for block in read_blocks(page) if not block.claim]
    typed = {program for block in walked for program in TYPED.findall(block.text)}
    need(*NEEDED.get(str(page.relative_to(ROOT)), ()), *sorted(typed))

    with walking(tmp_path) as walk:
        for block in walked:
            walk.follow(block)


@pytest.mark.parametrize("block", CLAIMED, ids=lambda block: block.place)
def test_what_is_named_above_a_block_reads_it(block: Block) -> None:
    check_claim(block)


@pytest.mark.parametrize(
    ("claim", "reason"),
    [
        ("tests/cli/test_db.py::test_check_says_what_the_server_is", "reads the page"),
        ("tests/cli/test_db.py::test_of_something_else", "has no test"),
        ("tests/cli/test_db.py", "has no test"),
        (".ci/run", "has other commands"),
    ],
)
def test_claim_of_who_does_not_read_the_block_is_refused(claim: str, reason: str) -> None:
    page = ROOT / "docs" / "how-to" / "upgrade.md"
    block = Block(page=page, line=1, language="console", text="$ make demo\n", claim=claim)

    with pytest.raises(AssertionError, match=reason):
        check_claim(block)


def check_claim(block: Block) -> None:
    """Refuse a claim of a test that cannot know what the block says."""
    path, _, name = (block.claim or "").partition("::")
    text = (ROOT / path).read_text(encoding="utf-8")
    if not path.endswith(".py"):
        typed = {command for command, _ in read_commands(block.text)}
        assert typed <= {*text.splitlines()}, f"{block.place}: {path} has other commands"
        return
    tests = find_arguments(text)
    assert name in tests, f"{block.place}: {path} has no test {name!r}"
    page = block.page.relative_to(ROOT if block.page.parent == ROOT else block.page.parents[1])
    sources = (text, *(each.read_text(encoding="utf-8") for each in find_imported(text)))
    is_read = any(f'{page}"' in source for source in sources)
    assert is_read or "blocks" in tests[name], (
        f"{block.place}: {name} does not take `blocks`, and nothing beside it reads the page"
    )


def find_arguments(source: str) -> dict[str, set[str]]:
    """Return what each test of *source* takes."""
    return {
        node.name: {argument.arg for argument in node.args.args}
        for node in ast.parse(source).body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


def find_imported(source: str) -> list[Path]:
    """Return the modules below tests/ that *source* imports from."""
    modules = (
        node.module for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ImportFrom)
    )
    paths = (ROOT / f"{(module or '').replace('.', '/')}.py" for module in modules)
    return [path for path in paths if path.is_relative_to(ROOT / "tests") and path.exists()]


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
