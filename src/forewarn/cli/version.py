"""`forewarn version`, and the option `--version`."""

import typer

import forewarn
from forewarn.cli.catalogue import alone

app = alone()


@app.command("version")
def print_version() -> None:
    """Print the version.

    Example: forewarn version
    """
    typer.echo(f"forewarn {forewarn.__version__}")
