"""The `forewarn` command. In the base install it only says how to get the rest."""

import sys


def main() -> None:
    """Run the command, or say what to install first."""
    try:
        from forewarn.cli.app import app
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("forewarn"):
            raise
        print("This is the base install; get the command with:", file=sys.stderr)
        print("  pip install 'forewarn[server]'", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
    app()
