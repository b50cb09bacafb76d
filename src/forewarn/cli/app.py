"""The command `forewarn` itself; what it can do is in `catalogue`."""

from typing import Annotated, Final

import typer

from forewarn.cli.framework import HELP, LazyGroup
from forewarn.cli.version import print_version

_WIDEST_HELP: Final = 120

app = typer.Typer(
    cls=LazyGroup,
    help="Scheduled Events, self-hosted: give machines notice of maintenance.",
    no_args_is_help=True,
    rich_markup_mode=None,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": HELP, "max_content_width": _WIDEST_HELP},
)


def _show_version(wanted: bool) -> None:  # noqa: FBT001 - typer calls it with the option's value
    if wanted:
        print_version()
        raise typer.Exit


@app.callback()
def _options(
    *,
    _version: Annotated[
        bool,
        typer.Option("--version", help="Print the version.", callback=_show_version, is_eager=True),
    ] = False,
) -> None:
    """Take the options that stand before a command."""
