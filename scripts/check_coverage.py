"""Print the coverage of each package, and check that the rules have full branch coverage.

`make coverage` runs only the tests that full coverage depends on, so that the figures of other
packages tell what these tests reach, not what all tests do.
"""

import json
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from coverage import Coverage

COMPLETE: Final = frozenset(
    {"domain", "files", "metadata", "operations", "outbound", "protocol", "wording"}
)
"""The packages in which every line and every branch must be covered."""


def main() -> int:
    """Print a table; return 1 if something is missing in a package that must be complete."""
    files = _read_report()
    packages: defaultdict[str, Counter[str]] = defaultdict(Counter)
    missing = []
    for name, report in files.items():
        package = _package_of(name)
        packages[package].update(report["summary"])
        if package in COMPLETE and (report["missing_lines"] or report["missing_branches"]):
            branches = [f"{begin}->{end}" for begin, end in report["missing_branches"]]
            places = [*map(str, report["missing_lines"]), *branches]
            missing.append(f"{name}: not covered: {', '.join(places)}")
    print(f"{'package':16} {'statements':>10} {'branches':>10} {'covered':>10}")
    for package, sums in sorted(packages.items()):
        mark = "  must be 100 %" if package in COMPLETE else ""
        print(
            f"{package:16} {sums['num_statements']:10} {sums['num_branches']:10} "
            f"{_percent(sums):8.2f} %{mark}"
        )
    for line in missing:
        print(line)
    if absent := COMPLETE - packages.keys():
        print(f"no data on: {', '.join(sorted(absent))}")
    return 1 if missing or absent else 0


def _read_report() -> Mapping[str, Any]:
    coverage = Coverage()
    coverage.load()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "coverage.json"
        coverage.json_report(outfile=str(path))
        files: Mapping[str, Any] = json.loads(path.read_text())["files"]
    return files


def _package_of(name: str) -> str:
    package, *inner = Path(name).parts[2:]  # after src/forewarn
    return package if inner else "(top)"


def _percent(sums: Mapping[str, int]) -> float:
    covered = sums["covered_lines"] + sums["covered_branches"]
    return 100 * covered / max(sums["num_statements"] + sums["num_branches"], 1)


if __name__ == "__main__":
    sys.exit(main())
