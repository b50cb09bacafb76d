"""One word, one meaning: no two public classes or names of types are the same."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

SOURCES = Path(__file__).parent.parent.parent / "src/forewarn"


def types(module: ast.Module) -> Iterator[str]:
    """Yield the public classes of *module*, wherever they are, and the aliases at its top."""
    for node in ast.walk(module):
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield node.name
    for line in module.body:
        if isinstance(line, ast.Assign):
            target = line.targets[0]
        elif isinstance(line, ast.AnnAssign) and ast.unparse(line.annotation) == "TypeAlias":
            target = line.target
        else:
            continue
        # In CamelCase: constants are in capitals, anything else in small letters.
        if isinstance(target, ast.Name) and target.id[0].isupper() and not target.id.isupper():
            yield target.id


def test_no_two_public_types_have_the_same_name() -> None:
    homes = defaultdict(list)
    for path in sorted(SOURCES.rglob("*.py")):
        for name in types(ast.parse(path.read_text(encoding="utf-8"))):
            homes[name].append(str(path.relative_to(SOURCES)))

    assert len(homes) > 500, "the sources were found"
    assert {"Rounds", "DocumentKey", "EventId"} <= homes.keys(), "classes and aliases were found"
    assert {name: paths for name, paths in homes.items() if len(paths) > 1} == {}
