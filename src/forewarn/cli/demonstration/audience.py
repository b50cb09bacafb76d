"""Who watches: a pipe or a terminal, where the link to the console stays below the story."""

import os
import sys
from collections.abc import Iterable

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from forewarn.cli.demonstration.narration import Line
from forewarn.protocol.controls import printable


class Audience:
    """Whoever is shown the demo on standard output; at a terminal they *stay* after the roll-out.

    Warnings of the server appear above the link, like the story.
    """

    def __init__(self) -> None:
        self._console = Console(highlight=False)
        self.stays = sys.stdout.isatty() and not self._console.is_dumb_terminal
        self._below = Live(
            console=self._console,
            auto_refresh=False,
            transient=True,
            redirect_stderr=sys.stderr.isatty(),
        )

    def __enter__(self) -> None:
        """Begin to show."""
        if self.stays:
            self._below.start()

    def __exit__(self, *_: object) -> None:
        """Leave the story on the terminal, and nothing below it."""
        try:
            self._below.stop()
        except OSError:
            self.has_left()

    def hear(self, lines: Iterable[Line]) -> None:
        """Show what has happened."""
        for line in lines:
            if not self.stays:
                print(printable(str(line)), flush=True)  # noqa: T201 - here the demo speaks
                continue
            folded_beside_its_time = Table.grid(padding=(0, 2, 0, 0))
            folded_beside_its_time.add_column(style="dim", no_wrap=True)
            folded_beside_its_time.add_row(f"{line.at:%H:%M:%S}", Text(printable(line.text)))
            self._console.print(folded_beside_its_time)

    def be_told(self, suggestions: Iterable[str]) -> None:
        """Show what to type, as it is to be copied."""
        for suggestion in suggestions:
            self._console.print(Text(suggestion, style="cyan"), soft_wrap=True)

    def keep_in_sight(self, link: str) -> None:
        """Show *link*, to the console, below everything."""
        notes = "The console (the link signs in one browser; Ctrl-C ends the demo):"
        shown = Text.assemble((f"\n{notes}\n", "dim"), (link, "bold"), overflow="fold")
        self._below.update(shown, refresh=True)

    def has_left(self) -> None:
        """Say no more: the pipe or the terminal is closed, and what is left must not fail."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
