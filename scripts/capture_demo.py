"""Run `forewarn demo` in a terminal and write what is seen there to docs/demo.svg, animated."""

import fcntl
import os
import pty
import re
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
COLUMNS, LINES = 80, 24
SHOWN: Final = LINES - 1
"""How many lines a frame has: one is left for the prompt of the shell."""
EVERY_SECONDS: Final = 0.5
LAST_FRAME_SECONDS: Final = 8
LONGEST_SECONDS: Final = 120
WIDTH, HEIGHT = 8.4, 18
MARGIN: Final = 12
NEW_FRAME: Final = re.compile(r"(?:\x1b\[1A\x1b\[2K)+")
"""What is written before each frame: the one before is removed line by line."""
SECRET: Final = re.compile(r"#fw_[\w-]+")
COLOURS: Final = {
    "color(1)": "r",
    "color(2)": "g",
    "color(3)": "y",
    "color(5)": "m",
    "color(6)": "c",
}
LETTERS: Final = {"bold": "b", "dim": "d", "reverse": "v"}
STYLE: Final = """
text{font:14px 'DejaVu Sans Mono',Menlo,Consolas,monospace;fill:#d8dee9;white-space:pre}
.b{font-weight:bold}.d{fill:#8b93a4}.y{fill:#ebcb8b}.r{fill:#ff7b85}.g{fill:#a3be8c}.c{fill:#88c0d0}
.m{fill:#d7a3d0}.v{fill:#1f2430}rect.v{fill:#d8dee9}
"""


def main() -> None:
    """Watch a demo, and draw it from the moment at which its roll-out begins."""
    frames = [frame for frame in _watch() if "Rolling" in frame or "completed" in frame]
    TARGET.write_text(_draw(frames), encoding="utf-8")
    print(f"{TARGET.name}: {len(frames)} frames, {TARGET.stat().st_size // 1000} kB")


def _watch() -> Iterator[str]:
    """Yield what is on the terminal, at even intervals, until the ending has been seen."""
    here, there = pty.openpty()
    fcntl.ioctl(there, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    commands = Path(sys.executable).parent
    environment = {"PATH": f"{commands}:{os.defpath}", "TERM": "xterm-256color"}
    command = ["setsid", "--ctty", str(commands / "forewarn"), "demo"]
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
        *_, frame, _unfinished = ("", *NEW_FRAME.split(seen.decode(errors="replace")))
        if frame and time.monotonic() >= next_frame:
            next_frame = time.monotonic() + EVERY_SECONDS
            yield SECRET.sub("#fw_…", frame)
        if "Requests lost" in frame:
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
    width, height = COLUMNS * WIDTH, SHOWN * HEIGHT
    rows: dict[str, int] = {}
    drawn = ["".join(_draw_frame(frame, number, rows)) for number, frame in enumerate(frames)]
    seconds = len(frames) * EVERY_SECONDS
    moved = 100 * seconds / (seconds + LAST_FRAME_SECONDS)
    last = -(len(frames) - 1) * height
    motion = (
        f"@keyframes k{{0%{{transform:translateY(0);animation-timing-function:"
        f"steps({len(frames)},jump-none)}}{moved:.2f}%,100%{{transform:translateY({last}px)}}}}"
        f".f{{animation:k {seconds + LAST_FRAME_SECONDS:g}s infinite}}"
        f"@media(prefers-reduced-motion){{.f{{animation:none}}}}"
    )
    whole = f"{width + 2 * MARGIN:g} {height + 2 * MARGIN:g}"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {whole}">',
            "<title>forewarn demo: a Freeze is rolled out through four hosts</title>",
            f"<style>{STYLE}{motion}</style>",
            '<rect width="100%" height="100%" rx="8" fill="#1f2430"/><defs>',
            *(f'<g id="r{number}">{row}</g>' for row, number in rows.items()),
            f'</defs><svg x="{MARGIN}" y="{MARGIN}" width="{width:g}" height="{height}">',
            '<g class="f">',
            *drawn,
            "</g></svg></svg>\n",
        ]
    )


def _draw_frame(frame: str, number: int, rows: dict[str, int]) -> Iterator[str]:
    """Yield where each line of *frame* goes; equal lines are drawn once, in *rows*."""
    for line, text in enumerate(frame.replace("\r", "").split("\n")[:SHOWN]):
        row = "".join(_draw_row(Text.from_ansi(text)))
        if row:
            y = (number * SHOWN + line) * HEIGHT
            yield f'<use href="#r{rows.setdefault(row, len(rows))}" y="{y}"/>'


def _draw_row(text: Text) -> Iterator[str]:
    edges = {0, len(text), *(edge for span in text.spans for edge in (span.start, span.end))}
    for start, end in pairwise(sorted(edges)):
        styles = " ".join(str(span.style) for span in text.spans if span.start <= start < span.end)
        if "reverse" in styles:
            x, length = start * WIDTH, (end - start) * WIDTH
            yield f'<rect class="v" x="{x:g}" width="{length:g}" height="{HEIGHT}"/>'
        part = text.plain[start:end].rstrip()
        indent = len(part) - len(part.lstrip())
        if part.strip():
            x, length = (start + indent) * WIDTH, (len(part) - indent) * WIDTH
            yield (
                f'<text x="{x:g}" y="14"{_classes(styles)} textLength="{length:g}">'
                f"{escape(part.strip(), quote=False)}</text>"
            )


def _classes(styles: str) -> str:
    words = styles.split()
    found = [COLOURS[word] for word in words if word in COLOURS]
    found += [letter for word, letter in LETTERS.items() if word in words]
    return f' class="{" ".join(found)}"' if found else ""


if __name__ == "__main__":
    main()
