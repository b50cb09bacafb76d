"""What polls cost, and how long they wait: each figure beside its goal.

`forewarn serve` is measured as it is run, and nginx serves the same bytes beside it, on the same
core, in slices that take turns; the figures are medians. Whoever asks has another core. CPU per
poll is what the processes were charged, the kernel's part included. `--markdown` writes the table
into a page of docs/.
"""

import os
import platform
import resource
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from goals import Row
from loads import ASKING, CORES, find_missing, nginx_version
from poll_costs import measure_callers, measure_sizes
from poll_waits import measure_apply, measure_parked, measure_relay
from smoke import new_parser, run, sized, skip_without

MANY: Final = sized(1_000_000, smoke=2_000)
SECONDS: Final = sized(2.0, smoke=0.2)
BEGIN, END = "<!-- figures -->", "<!-- end of figures -->"

Measure = Callable[[float, int], Iterator[Row]]
PARTS: Final[Mapping[str, Measure]] = {
    "callers": measure_callers,
    "sizes": measure_sizes,
    "apply": measure_apply,
    "parked": measure_parked,
    "relay": measure_relay,
}


def main() -> None:
    """Print the table."""
    parser = new_parser(__doc__)
    parser.add_argument("--only", choices=PARTS, nargs="+", default=list(PARTS), help="these rows")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="how long each slice takes")
    parser.add_argument("--vms", type=int, default=MANY, help="how many VMs the large fleet has")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="put the table in this page")
    options = parser.parse_args()
    missing = find_missing()
    if missing:
        skip_without(*missing)
        return
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    os.sched_setaffinity(0, {ASKING})
    print(_machine(), flush=True)
    rows = []
    for part in options.only:
        for row in PARTS[part](options.seconds, options.vms):
            print(row, flush=True)
            rows.append(row)
    if options.markdown:
        _write(options.markdown, rows)


def _write(page: Path, rows: Iterable[Row]) -> None:
    """Put the table in its place in *page*."""
    lines = (f"| {row.what} | {row.goal} | {_verdict(row)} |" for row in rows)
    table = "\n".join(
        (_machine(), "", "| measurement | goal | measured |", "|---|---|---|", *lines)
    )
    before, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    page.write_text(f"{before}{BEGIN}\n{table}\n{END}{after}", encoding="utf-8")


def _verdict(row: Row) -> str:
    return row.measured if row.met else f"**{row.measured}**"


def _machine() -> str:
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    model = next((line.partition(": ")[2] for line in lines if line.startswith("model name")), "")
    release, _, _ = platform.release().partition("-")
    system = f"Linux {release}, Python {platform.python_version()}, {nginx_version()}"
    return f"Measured on {len(CORES)} cores of {model or platform.machine()}, {system}."


if __name__ == "__main__":
    run(main)
