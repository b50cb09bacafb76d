"""Which tests there are, without running or importing any of them."""

import ast
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent.parent
NAMED: Final = re.compile(r"`([\w/]+\.py::\w+)`")
"""How a page names a test, below tests/."""


def find_tests(paths: Iterable[str]) -> set[str]:
    """Return the tests of the files at *paths*, each as `path::name`; no file, no tests."""
    return {
        f"{path}::{node.name}"
        for path in paths
        if (ROOT / path).is_file()
        for node in ast.parse((ROOT / path).read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith("test_")
    }
