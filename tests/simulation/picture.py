"""A picture of what happened under a seed, drawn from its trace."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from html import escape
from typing import Final

from tests.simulation.world import HOUR

_WIDTH: Final = 900
_LEFT, _TOP, _LANE = 90, 84, 40
_STYLE: Final = """\
  <style>
    .paper { fill: #fff } text { fill: #495057; font-size: 13px } .name { font-weight: 600 }
    .title { fill: #212529; font-size: 16px; font-weight: 600 } .hour { stroke: #dee2e6 }
    .on { fill: #ced4da } .leads { fill: #1c7ed6 } .done { fill: #2f9e44 } .lost { fill: #e03131 }
    .failed { fill: #f08c00 } .fault { stroke: #e03131; stroke-width: 2 }
    .typed { fill: #495057 } .calm { fill: #2f9e44; fill-opacity: 0.08 }
    @media (prefers-color-scheme: dark) {
      .paper { fill: #1b1d21 } text { fill: #ced4da } .title { fill: #f1f3f5 }
      .hour { stroke: #373b41 } .on { fill: #495057 } .typed { fill: #ced4da }
    }
  </style>"""
_STOPS: Final = re.compile(r"dies at|loses power|cannot start|stands still|loses touch|goes away")
_STARTS: Final = re.compile(r"starts$|is in touch again|is back$")
_KINDS: Final = (
    *(("on", "runs"), ("leads", "leads"), ("done", "task that is done")),
    *(("failed", "task that fails"), ("lost", "task that is lost"), ("typed", "command typed")),
)


@dataclass(slots=True)
class _Lane:
    """What a server, the database or the operator did: from when to when, and what kind it is."""

    bars: list[tuple[int, int, str]] = field(default_factory=list)
    tasks: list[tuple[int, int, str]] = field(default_factory=list)
    faults: list[int] = field(default_factory=list)
    since: int | None = None
    leads_since: int | None = None

    def stop(self, at: int) -> None:
        for since, kind in ((self.since, "on"), (self.leads_since, "leads")):
            if since is not None and since < at:
                self.bars.append((since, at, kind))
        self.since = self.leads_since = None

    def stop_leading(self, at: int) -> None:
        if self.leads_since is not None and self.leads_since < at:
            self.bars.append((self.leads_since, at, "leads"))
        self.leads_since = None


def draw_picture(seed: int, lines: Iterable[str]) -> str:
    """Return the SVG for the trace of *seed*."""
    lanes, calm, ends = _read(lines)
    height = _TOP + _LANE * len(lanes) + 44
    body = "\n".join(f"  {shape}" for shape in _shapes(lanes, calm, ends))
    title = f"What happened under seed {seed}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img"\n'
        f'     aria-label="{title}" font-family="system-ui, \'DejaVu Sans\', sans-serif">\n'
        f"  <title>{title}</title>\n{_STYLE}\n"
        f'  <rect class="paper" width="{_WIDTH}" height="{height}" rx="8"/>\n'
        f'  <text class="title" x="16" y="28">{title}</text>\n{body}\n</svg>\n'
    )


def _read(lines: Iterable[str]) -> tuple[dict[str, _Lane], int, int]:
    lanes: defaultdict[str, _Lane] = defaultdict(_Lane)
    lanes["database"].since = 0
    running: dict[tuple[str, str], int] = {}
    calm = at = 0
    for line in lines:
        moment, who, what = [*line.split(maxsplit=2), "", ""][:3]
        at = int(moment)
        if who == "ada" and what.startswith("types"):
            lanes["operator"].tasks.append((at, at, "typed"))
        elif what.startswith("nothing goes wrong"):
            calm = at
        elif re.fullmatch(r"r\d+|database", who) and what:
            _take(lanes[who], lanes, running, at, who, what)
    for lane in lanes.values():
        lane.stop(at)
    return {name: lanes[name] for name in sorted(lanes, key=_rank)}, calm, at


def _take(
    lane: _Lane,
    lanes: dict[str, _Lane],
    running: dict[tuple[str, str], int],
    at: int,
    who: str,
    what: str,
) -> None:
    if what.startswith("really begins"):
        running[who, what.split()[2]] = at
    elif what.startswith("really ends"):
        key, _, how = what.removeprefix("really ends ").partition(" ")
        kind = {"done": "done", "failed": "failed"}.get(how, "lost")
        lane.tasks.append((running.pop((who, key), at), at, kind))
    elif what.startswith("leads under"):
        for each in lanes.values():
            each.stop_leading(at)
        lane.leads_since = at
    elif _STOPS.search(what):
        has_led = lane.leads_since is not None
        lane.stop(at)
        lane.faults.append(at)
        if pause := re.search(r"stands still at .* for (\d+) ms", what):
            lane.since = at + int(pause[1]) * 1000
            lane.leads_since = lane.since if has_led else None
    elif _STARTS.search(what) and lane.since is None:
        lane.since = at


def _rank(name: str) -> tuple[int, str]:
    return (("database", "r", "operator").index(re.sub(r"\d", "", name)), name)


def _shapes(lanes: dict[str, _Lane], calm: int, ends: int) -> Iterator[str]:
    scale = (_WIDTH - _LEFT - 16) / max(ends, 1)
    bottom = _TOP + _LANE * len(lanes)

    def bar(kind: str, began: int, ended: int, top: float, height: float) -> str:
        width = max((ended - began) * scale, 1.5)
        x = _LEFT + began * scale
        return (
            f'<rect class="{kind}" x="{x:.1f}" y="{top:g}" width="{width:.1f}" height="{height}"/>'
        )

    yield bar("calm", calm, ends, _TOP - 8, bottom - _TOP + 8)
    for hour in range(ends // HOUR + 1):
        x = _LEFT + hour * HOUR * scale
        yield f'<line class="hour" x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP - 8}" y2="{bottom}"/>'
        yield f'<text x="{x:.1f}" y="{bottom + 16}" text-anchor="middle">{hour} h</text>'
    for number, (name, lane) in enumerate(lanes.items()):
        top = _TOP + number * _LANE
        yield f'<text class="name" x="16" y="{top + 18}">{escape(name)}</text>'
        for began, ended, kind in lane.bars:
            yield bar(kind, began, ended, top + 4, 10 if kind == "leads" else 6)
        for began, ended, kind in lane.tasks:
            yield bar(kind, began, ended, top + 16, 10)
        for at in lane.faults:
            x = _LEFT + at * scale
            yield f'<line class="fault" x1="{x:.1f}" x2="{x:.1f}" y1="{top}" y2="{top + 14}"/>'
    x = 16
    for kind, said in _KINDS:
        yield f'<rect class="{kind}" x="{x}" y="42" width="12" height="10"/>'
        yield f'<text x="{x + 16}" y="52">{said}</text>'
        x += 32 + 7 * len(said)
    yield f'<line class="fault" x1="{x}" x2="{x}" y1="40" y2="54"/>'
    yield f'<text x="{x + 7}" y="52">fault</text>'
    if calm:
        x = _LEFT + calm * scale + 6
        yield f'<text x="{x:.1f}" y="{bottom - 8}">from here on, nothing goes wrong</text>'
