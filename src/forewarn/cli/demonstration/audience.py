"""Who watches: a terminal gets the screen and may press a key, a pipe gets the story in lines."""

import io
import os
import select
import sys
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from importlib.util import find_spec

from rich.console import Console, Group
from rich.live import Live

from forewarn.cli.demonstration.screen import draw
from forewarn.cli.demonstration.story import Line, Scene
from forewarn.protocol.controls import printable


class Audience:
    """People *watch* at a terminal; if they can press keys, they *stay* after the roll-out."""

    def __init__(self) -> None:
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="replace")  # for terminals without the signs we draw
        self._console = Console(highlight=False)
        self.watches = sys.stdout.isatty() and not self._console.is_dumb_terminal
        self.stays = self.watches and _can_press_keys()
        has_errors = sys.stderr.isatty()  # on the same screen, above the frame
        self._screen = Live(console=self._console, auto_refresh=False, redirect_stderr=has_errors)
        self._closing = ExitStack()

    def __enter__(self) -> None:
        """Begin to show; keys arrive when they are pressed, unseen, without Enter."""
        if self.stays:
            import termios  # noqa: PLC0415 - not on Windows
            import tty  # noqa: PLC0415

            terminal = sys.stdin.fileno()
            self._closing.enter_context(suppress(termios.error))  # the window may be closed then
            before = termios.tcgetattr(terminal)
            self._closing.callback(termios.tcsetattr, terminal, termios.TCSANOW, before)
            tty.setcbreak(terminal, termios.TCSANOW)
        if self.watches:
            self._screen.start()

    def __exit__(self, *_: object) -> None:
        """Leave the last frame on the terminal."""
        with self._closing:
            try:
                self._screen.stop()
            except OSError:
                self.has_left()

    def see(self, scene: Scene) -> None:
        """Show *scene*, in a frame that leaves a line for the prompt of the shell."""
        if self.watches:
            width, height = self._console.size
            self._screen.update(Group(*draw(scene, width, height - 1)), refresh=True)

    def hear(self, lines: Iterable[Line]) -> None:
        """Tell what has happened to those who cannot see it."""
        for line in () if self.watches else lines:
            print(printable(str(line)), flush=True)  # noqa: T201 - here the demo speaks

    def has_pressed(self, key: str) -> bool:
        """Tell whether they have pressed *key* since they were last asked."""
        if not self.stays or not select.select([sys.stdin], [], [], 0)[0]:
            return False
        return key.encode() in os.read(sys.stdin.fileno(), 64)

    def has_left(self) -> None:
        """Say no more: the pipe or the terminal is closed, and what is left must not fail."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def _can_press_keys() -> bool:
    """Tell whether there is a keyboard that is ours; a job in the background has none."""
    if find_spec("termios") is None or not sys.stdin.isatty():
        return False
    return os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
