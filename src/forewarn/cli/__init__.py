"""The `forewarn` command. Without the extra `cli` it only says how to get the rest."""

import os
import sys


def main() -> None:
    """Run the command, or say what to install first."""
    _open_missing()
    try:
        _run()
    except KeyboardInterrupt:  # before a command could take it
        sys.exit(130)


def _open_missing() -> None:
    """Open nothing as input or output where there is none: else a socket would get its number."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free


def _run() -> None:
    try:
        from forewarn.cli.app import app
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("forewarn"):
            raise
        print("The forewarn command is not installed; install it with:", file=sys.stderr)
        print("  pip install 'forewarn[server]'", file=sys.stderr)
        sys.exit(2)
    app(prog_name="forewarn")
