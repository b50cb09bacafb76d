"""Run `forewarn demo` in a terminal and write what is seen there to docs/demo.svg, animated.

Every frame of the demo is a full screen, so no emulation of a terminal is needed.
"""

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from html import escape
from itertools import pairwise
from pathlib import Path
from typing import Final

from rich.text import Text

TARGET: Final = Path(__file__).parent.parent / "docs" / "demo.svg"
COLUMNS, LINES = 100, 32
EVERY_SECONDS: Final = 0.5
PLAYED_FASTER: Final = 2
LAST_FRAME_SECONDS: Final = 8
LONGEST_SECONDS: Final = 120
CHARACTER: Final = (8.4, 18)
MARGIN: Final = 12
NEW_FRAME: Final = b"\x1b[H"
COLOURS: Final = {"color(1)": "r", "color(2)": "g", "color(3)": "y", "color(6)": "c"}
STYLE: Final = """
text{font:14px 'DejaVu Sans Mono',Menlo,Consolas,monospace;fill:#d8dee9;white-space:pre}
.b{font-weight:bold}.d{fill:#7b8394}.y{fill:#ebcb8b}.r{fill:#ff7b85}.g{fill:#a3be8c}.c{fill:#88c0d0}
"""


def main() -> None:
    """Watch a demo, and draw it."""
    frames = list(_watch())
    TARGET.write_text(_draw(frames), encoding="utf-8")
    print(f"{TARGET.name}: {len(frames)} frames, {TARGET.stat().st_size // 1000} kB")


def _watch() -> Iterator[str]:
    """Yield what is on the terminal, at even intervals."""
    here, there = pty.openpty()
    fcntl.ioctl(there, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    commands = Path(sys.executable).parent
    environment = {"PATH": f"{commands}:{os.defpath}", "TERM": "xterm-256color"}
    command = [str(commands / "forewarn"), "demo"]
    with subprocess.Popen(command, stdin=there, stdout=there, env=environment) as process:  # noqa: S603
        os.close(there)
        try:
            yield from _sample(here)
        finally:
            process.send_signal(signal.SIGINT)
            while _read(here):
                pass  # it cannot leave while nobody reads what it writes
    os.close(here)


def _sample(terminal: int) -> Iterator[str]:
    seen, next_frame = b"", time.monotonic()
    until = next_frame + LONGEST_SECONDS
    while time.monotonic() < until:
        seen += _read(terminal)
        *earlier, frame, unfinished = (b"", *seen.split(NEW_FRAME))
        if not earlier:
            continue
        seen = NEW_FRAME.join((b"", frame, unfinished))
        if time.monotonic() >= next_frame:
            next_frame = max(next_frame, time.monotonic() - EVERY_SECONDS) + EVERY_SECONDS
            yield frame.decode()
        if b"Your turn" in frame:
            until = min(until, time.monotonic() + 1)


def _read(terminal: int) -> bytes:
    if not select.select([terminal], [], [], 1)[0]:
        return b""
    try:
        return os.read(terminal, 65536)
    except OSError:  # how Linux says that the other side has closed
        return b""


def _draw(frames: list[str]) -> str:
    """Return one picture: the frames below each other, moved through a window."""
    width, height = COLUMNS * CHARACTER[0], LINES * CHARACTER[1]
    rows: dict[str, int] = {}
    drawn = [list(_draw_frame(frame, number, rows)) for number, frame in enumerate(frames)]
    seconds = len(frames) * EVERY_SECONDS / PLAYED_FASTER
    moved = 100 * seconds / (seconds + LAST_FRAME_SECONDS)
    last = -(len(frames) - 1) * height
    motion = (
        f"@keyframes k{{0%{{transform:translateY(0);animation-timing-function:"
        f"steps({len(frames)},jump-none)}}{moved:.2f}%,100%{{transform:translateY({last}px)}}}}"
        f".f{{animation:k {seconds + LAST_FRAME_SECONDS:g}s infinite}}"
        f"@media(prefers-reduced-motion){{.f{{animation:none;transform:translateY({last}px)}}}}"
    )
    whole = f"{width + 2 * MARGIN:g} {height + 2 * MARGIN:g}"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {whole}">',
            "<title>forewarn demo: a roll-out through four hosts</title>",
            f"<style>{STYLE}{motion}</style>",
            '<rect width="100%" height="100%" rx="8" fill="#1f2430"/><defs>',
            *(f'<g id="r{number}">{row}</g>' for row, number in rows.items()),
            f'</defs><svg x="{MARGIN}" y="{MARGIN}" width="{width:g}" height="{height}">',
            '<g class="f">',
            *("".join(uses) for uses in drawn),
            "</g></svg></svg>\n",
        ]
    )


def _draw_frame(frame: str, number: int, rows: dict[str, int]) -> Iterator[str]:
    """Yield where each line of *frame* goes; equal lines are drawn once, in *rows*."""
    for line, text in enumerate(frame.replace("\r", "").split("\n")[:LINES]):
        row = "".join(_draw_row(Text.from_ansi(text)))
        if row:
            y = (number * LINES + line) * CHARACTER[1]
            yield f'<use href="#r{rows.setdefault(row, len(rows))}" y="{y}"/>'


def _draw_row(text: Text) -> Iterator[str]:
    boundaries = {0, len(text), *(edge for span in text.spans for edge in (span.start, span.end))}
    for start, end in pairwise(sorted(boundaries)):
        part = text.plain[start:end].rstrip()
        indent = len(part) - len(part.lstrip())
        if part.strip():
            styles = [str(span.style) for span in text.spans if span.start <= start < span.end]
            x = (start + indent) * CHARACTER[0]
            length = (len(part) - indent) * CHARACTER[0]
            yield (
                f'<text x="{x:g}" y="14"{_classes(" ".join(styles))} textLength="{length:g}">'
                f"{escape(part.strip(), quote=False)}</text>"
            )


def _classes(style: str) -> str:
    words = style.split()
    found = [COLOURS[word] for word in words if word in COLOURS]
    found += [word[0] for word in ("bold", "dim") if word in words]
    return f' class="{" ".join(found)}"' if found else ""


if __name__ == "__main__":
    main()
