"""How long a function or a module may be: what is longer is two things."""

import ast
from collections.abc import Iterator
from pathlib import Path

SOURCES = Path(__file__).parent.parent.parent / "src/forewarn"
LONGEST_FUNCTION = 46
"""In lines, from its `def` to its end, docstring included."""
LONGEST_MODULE = 400


def modules() -> Iterator[tuple[str, str]]:
    for path in sorted(SOURCES.rglob("*.py")):
        if "migrations" not in path.parts:
            yield str(path.relative_to(SOURCES)), path.read_text(encoding="utf-8")


def test_no_function_is_long() -> None:
    lengths = {
        f"{path}: {node.name}": (node.end_lineno or 0) - node.lineno + 1
        for path, text in modules()
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }

    assert len(lengths) > 3000, "the sources were found"
    assert {name: lines for name, lines in lengths.items() if lines > LONGEST_FUNCTION} == {}


def test_no_module_is_long() -> None:
    lengths = {path: len(text.splitlines()) for path, text in modules()}

    assert {path: lines for path, lines in lengths.items() if lines > LONGEST_MODULE} == {}
