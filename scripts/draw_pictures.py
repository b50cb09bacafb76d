"""Draw the pictures of docs/pictures, from the tables in the code where there is one.

`make reference` writes them. Each brings its own background, light or dark as the reader's system
is, so that it can be read on any page.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from html import escape
from typing import Final

from forewarn.domain.event import TRANSITIONS
from forewarn.domain.notice import MINIMUM_NOTICE
from forewarn.domain.scenario import USUAL_IMPACT
from forewarn.domain.topology import ScopeKind
from forewarn.protocol.vocabulary import EventStatus, EventType

STYLE: Final = """\
  <style>
    .paper { fill: #fff } .box { fill: #f1f3f5; stroke: #495057; stroke-width: 1.5 }
    .seen { fill: #e7f5ff; stroke: #1864ab; stroke-width: 2 } .notice { fill: #ffe066 }
    .impact { fill: #ffa94d } .frame { fill: none; stroke: #868e96; stroke-dasharray: 5 4 }
    .line { fill: none; stroke: #495057; stroke-width: 2; marker-end: url(#tip) }
    .rule { stroke: #ced4da; stroke-width: 1 } .tip { fill: #495057 }
    .name { fill: #212529; font-weight: 600 } .text { fill: #495057; font-size: 14px }
    .dark { fill: #212529; font-size: 13px }
    @media (prefers-color-scheme: dark) {
      .paper { fill: #1b1d21 } .box { fill: #2b2f36; stroke: #adb5bd }
      .seen { fill: #12304a; stroke: #74c0fc } .notice { fill: #e6b800 } .impact { fill: #e8590c }
      .frame { stroke: #868e96 } .line { stroke: #ced4da } .rule { stroke: #495057 }
      .tip { fill: #ced4da } .name { fill: #f1f3f5 } .text { fill: #ced4da } .dark { fill: #111 }
    }
  </style>
  <defs>
    <marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7"
            orient="auto-start-reverse"><path class="tip" d="M0 0 10 5 0 10z"/></marker>
  </defs>"""


def pictures() -> Iterator[tuple[str, str]]:
    """Yield the name of each picture with its text."""
    yield "overview.svg", _draw(960, 330, "What forewarn does", _overview())
    yield "life-of-an-event.svg", _draw(900, 330, "The life of an event", _life())
    yield "update-domain-walk.svg", _draw(960, 300, "A walk over update domains", _walk())
    yield "delivery-scopes.svg", _draw(960, 330, "Delivery scopes", _scopes())


def _draw(width: int, height: int, title: str, shapes: Iterator[str]) -> str:
    body = "\n".join(f"  {shape}" for shape in shapes)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img"\n'
        f'     aria-label="{escape(title)}" font-size="16"\n'
        "     font-family=\"system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif\">\n"
        f"  <title>{escape(title)}</title>\n{STYLE}\n"
        f'  <rect class="paper" width="{width}" height="{height}" rx="8"/>\n{body}\n</svg>\n'
    )


def _box(kind: str, x: float, y: float, width: float, height: float) -> str:
    return (
        f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="6"/>'
    )


def _text(kind: str, x: float, y: float, words: str, *, anchor: str = "start") -> str:
    return f'<text class="{kind}" x="{x:g}" y="{y:g}" text-anchor="{anchor}">{escape(words)}</text>'


def _line(path: str) -> str:
    return f'<path class="line" d="{path}"/>'


def _overview() -> Iterator[str]:
    for x, name, texts in (
        (30, "Operator", ("plans a maintenance,", "watches it, holds it")),
        (370, "forewarn", ("tells, waits, decides: one", "update domain at a time")),
        (710, "Virtual machines", ("drain, approve, recover:", "agent, SDK, any client")),
    ):
        yield _box("seen" if name == "forewarn" else "box", x, 60, 220, 110)
        yield _text("name", x + 110, 92, name, anchor="middle")
        for row, words in enumerate(texts):
            yield _text("text", x + 110, 122 + 22 * row, words, anchor="middle")
    yield _line("M250 115H368")
    yield _text("text", 310, 103, "1 schedule", anchor="middle")
    yield _line("M590 95H708")
    yield _text("text", 650, 83, "2 notice", anchor="middle")
    yield _line("M710 140H592")
    yield _text("text", 650, 162, "3 approval", anchor="middle")
    yield _box("box", 370, 240, 220, 60)
    yield _text("name", 480, 266, "Hosts", anchor="middle")
    yield _text("text", 480, 288, "libvirt · scripts · webhooks", anchor="middle")
    yield _line("M480 170V238")
    yield _text("text", 490, 212, "4 maintenance, once")
    yield _line("M592 270H820V172")
    yield _text("text", 706, 290, "5 reboot, freeze, move", anchor="middle")


_PLACES: Final = {
    EventStatus.SCHEDULED: (150, 150),
    EventStatus.STARTED: (450, 150),
    EventStatus.COMPLETED: (750, 150),
    EventStatus.CANCELED: (450, 265),
}
_VISIBLE: Final = (EventStatus.SCHEDULED, EventStatus.STARTED)


def _life() -> Iterator[str]:
    """Draw each status once, and an arrow for each transition of the table."""
    for status, (x, y) in _PLACES.items():
        yield _box("seen" if status in _VISIBLE else "box", x - 80, y - 26, 160, 52)
        yield _text("name", x, y + 6, status.value, anchor="middle")
    loops = [trigger for (before, trigger), after in TRANSITIONS.items() if before is after]
    yield _line("M110 124C70 40 230 40 190 122")
    yield _text("text", 150, 50, ", ".join(loops), anchor="middle")
    for (before, trigger), after in TRANSITIONS.items():
        if before is not after:
            yield from _transition(_PLACES[before], _PLACES[after], trigger)
    yield _text("text", 30, 310, "Blue: virtual machines read it in their document.")
    yield _text("text", 870, 310, "Any other change is refused.", anchor="end")


def _transition(before: tuple[int, int], after: tuple[int, int], words: str) -> Iterator[str]:
    if before[1] == after[1]:
        yield _line(f"M{before[0] + 80} {before[1]}H{after[0] - 82}")
        yield _text("text", (before[0] + after[0]) / 2, before[1] - 12, words, anchor="middle")
    else:
        yield _line(f"M{before[0]} {before[1] + 26}V{after[1]}H{after[0] - 82}")
        yield _text("text", (before[0] + after[0]) / 2, after[1] - 12, words, anchor="middle")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Turn:
    vm: str
    approved_after: timedelta | None


_TURNS: Final = (
    _Turn(vm="web-0", approved_after=timedelta(minutes=4)),
    _Turn(vm="web-1", approved_after=None),
    _Turn(vm="web-2", approved_after=timedelta(minutes=7)),
)


def _walk() -> Iterator[str]:
    """Draw the reboots of one set, each announced when the one before has ended."""
    notice, impact = MINIMUM_NOTICE[EventType.REBOOT], USUAL_IMPACT[EventType.REBOOT]
    left, scale, now = 150.0, 13.0, timedelta()
    for minute in range(0, 60, 10):
        x = left + minute * scale
        yield f'<path class="rule" d="M{x:g} 30V240"/>'
        yield _text("text", x, 260, f"{minute} min", anchor="middle")
    for row, turn in enumerate(_TURNS):
        y = 45 + 65 * row
        waited = min(turn.approved_after or notice, notice)
        begun, width = left + _minutes(now) * scale, _minutes(waited) * scale
        yield _text("name", 20, y + 20, turn.vm)
        yield _text("text", 20, y + 40, f"update domain {row}")
        yield _box("notice", begun, y, width, 40)
        yield _box("impact", begun + width, y, _minutes(impact) * scale, 40)
        told = "approves" if turn.approved_after else "says nothing: full notice"
        yield _text("dark", begun + 5, y + 25, told if width > 100 else "")
        if width <= 100:
            yield _text("text", begun, y - 6, told)
        yield _text("dark", begun + width + 6, y + 25, "Reboot")
        now += waited + impact
    yield _text(
        "text", 150, 287, "Yellow: Scheduled, until an approval or NotBefore. Orange: Started."
    )


def _minutes(length: timedelta) -> float:
    return length / timedelta(minutes=1)


_SCOPES: Final = {
    ScopeKind.AVAILABILITY_SET: ("web", (("web-0", 0), ("web-1", 1), ("web-2", 2))),
    ScopeKind.CLOUD_SERVICE: ("shop", (("FrontEnd_IN_0", 0), ("BackEnd_IN_0", 0))),
    ScopeKind.SCALE_SET: ("batch, one placement group", (("batch_0", 0), ("batch_1", 1))),
    ScopeKind.VIRTUAL_MACHINE: ("standalone", (("solo", 0),)),
}


def _scopes() -> Iterator[str]:
    """Draw one scope of each kind that there is."""
    for column, kind in enumerate(ScopeKind):
        name, machines = _SCOPES[kind]
        x = 20 + 235 * column
        yield _box("frame", x, 40, 215, 215)
        yield _text("name", x + 107, 30, kind.noun, anchor="middle")
        yield _text("text", x + 107, 62, name, anchor="middle")
        for row, (vm, domain) in enumerate(machines):
            y = 78 + 56 * row
            yield _box("seen", x + 12, y, 191, 46)
            yield _text("name", x + 24, y + 20, vm)
            yield _text("text", x + 24, y + 38, f"update domain {domain}")
    yield _text(
        "text",
        20,
        285,
        "Machines in one frame read the same document, and each can approve its events.",
    )
    yield _text(
        "text", 20, 308, "An event never names machines of two frames, or of two update domains."
    )
