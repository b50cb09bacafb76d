"""Check that no two public classes or type aliases in src have the same name."""

import ast
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final

SOURCES: Final = Path(__file__).parent.parent / "src/forewarn"


def find_types(module: ast.Module) -> Iterator[str]:
    """Yield the public classes of *module*, nested ones too, and the aliases at its top."""
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
        # Only types are in CamelCase.
        if isinstance(target, ast.Name) and target.id[0].isupper() and not target.id.isupper():
            yield target.id


def main() -> int:
    """Print each name that is used twice; return 1 if there is one."""
    homes = defaultdict(list)
    for path in sorted(SOURCES.rglob("*.py")):
        for name in find_types(ast.parse(path.read_text(encoding="utf-8"))):
            homes[name].append(path.relative_to(SOURCES).as_posix())
    repeated = {name: paths for name, paths in homes.items() if len(paths) > 1}
    for name, paths in repeated.items():
        print(f"{name}: {', '.join(paths)}: give each a name of its own")
    return 1 if repeated else 0


if __name__ == "__main__":
    sys.exit(main())
