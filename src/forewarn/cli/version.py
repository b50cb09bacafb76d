"""`forewarn version`, and the option `--version`."""

import typer

from forewarn.cli.catalogue import alone
from forewarn.commit import version_with_commit

app = alone()


@app.command("version")
def print_version() -> None:
    """Print the version.

    Example: forewarn version
    """
    typer.echo(f"forewarn {version_with_commit()}")
