"""One word, one meaning: no two public classes share a name."""

import ast
from collections import defaultdict
from pathlib import Path

SOURCES = Path(__file__).parent.parent.parent / "src/forewarn"


def test_no_two_public_classes_have_the_same_name() -> None:
    homes = defaultdict(list)
    for path in sorted(SOURCES.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(str(path.relative_to(SOURCES)))

    assert len(homes) > 500, "the sources were found"
    assert {name: paths for name, paths in homes.items() if len(paths) > 1} == {}
