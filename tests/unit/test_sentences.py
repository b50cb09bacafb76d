"""Sentences of rules and verbs are read in many places, so they name fields, not options."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import forewarn
from forewarn.cli.output import OPTIONS

PACKAGE = Path(forewarn.__file__).parent
PARTS = ("domain", "operations", "desk")


def literals(part: str) -> Iterator[tuple[str, str]]:
    """Yield where each text of *part* is, and the text; none is of a docstring."""
    for path in sorted((PACKAGE / part).glob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        told = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and id(node) not in told:
                yield f"{part}/{path.name}:{node.lineno}", str(node.value)


@pytest.mark.parametrize("part", PARTS)
def test_sentences_name_neither_options_nor_commands(part: str) -> None:
    found = [where for where, text in literals(part) if re.search(r"--[a-z]|\bforewarn ", text)]

    assert found == [], "name the field in backticks; OPTIONS in cli/output.py says its option"


def test_every_field_that_a_sentence_names_has_an_option() -> None:
    named = {
        field
        for part in PARTS
        for _, text in literals(part)
        for field in re.findall("`(.*?)`", text)
    }

    assert named == set(OPTIONS)
