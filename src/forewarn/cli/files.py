"""Files that a command is given."""

import sys
from pathlib import Path
from typing import Final

from forewarn.cli.errors import CommandError, ExitCode

_STANDARD_INPUT: Final = Path("-")


def read_text(file: Path, *, command: str) -> str:
    """Return what is in *file*, or comes in through -, or refuse to do *command*."""
    try:
        content = sys.stdin.buffer.read() if file == _STANDARD_INPUT else file.read_bytes()
        # Editors on Windows begin UTF-8 with a byte order mark.
        return content.decode("utf-8-sig").replace("\r\n", "\n")
    except OSError as error:
        problem = f"{name_file(file)} cannot be read: {error.strerror}."
    except UnicodeDecodeError:
        problem = f"{name_file(file)} is not UTF-8 text."
    raise CommandError(problem, code=ExitCode.USAGE, hint=f"try: forewarn {command} --help")


def name_file(file: Path) -> str:
    """Return how to call *file* in a sentence or before a line number."""
    return "standard input" if file == _STANDARD_INPUT else str(file)


def refuse_lines(
    file: Path, placed: list[tuple[int | None, str]], code: ExitCode, hint: str = ""
) -> CommandError:
    """Return all mistakes in *file* with their lines, in its order."""
    placed.sort(key=lambda mistake: mistake[0] or 0)
    name = name_file(file)
    (place, problem), *others = (
        (name if line is None else f"{name}:{line}", problem) for line, problem in placed
    )
    more = [f"{where}: {said}" for where, said in others]
    return CommandError(problem, code=code, hint=hint, place=place, more=more)
