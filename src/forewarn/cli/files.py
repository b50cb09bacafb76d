"""Files that a command is given."""

from pathlib import Path

from forewarn.cli.errors import CommandError, ExitCode


def read_text(file: Path, *, command: str) -> str:
    """Return what is in *file*, or refuse to do *command*."""
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        problem = f"{file} cannot be read: {error.strerror}."
    except UnicodeDecodeError:
        problem = f"{file} is not UTF-8 text."
    raise CommandError(problem, code=ExitCode.USAGE, hint=f"try: forewarn {command} --help")
