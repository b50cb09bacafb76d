"""The commands of `forewarn`, one file per noun."""

from typing import Annotated, Final

import typer
from pydantic import ValidationError
from typer._click import Context, HelpFormatter
from typer.core import TyperGroup

import forewarn
from forewarn.cli import (
    clock,
    config,
    db,
    emulator,
    event,
    fault,
    fleet,
    gate,
    host,
    maintenance,
    notification,
    scenario,
    schedule,
    scope,
    token,
    vm,
)
from forewarn.cli.audit import audit
from forewarn.cli.calendar import calendar
from forewarn.cli.completion import completion
from forewarn.cli.demo import demo
from forewarn.cli.doctor import doctor
from forewarn.cli.serve import serve
from forewarn.cli.server import pause, resume
from forewarn.cli.session import command
from forewarn.operations.invalid_values import say_invalid

_RARE: Final = frozenset(
    {
        "calendar",
        "clock",
        "completion",
        "config",
        "db",
        "emulator",
        "fault",
        "gate",
        "pause",
        "resume",
        "scope",
        "token",
    }
)
"""The commands that the help only names, so that it fits a screen."""


class _Screenful(TyperGroup):
    """The commands, the rare ones below the others in one line.

    A value that is refused is refused in our words, not in those of the library that read it.
    """

    def invoke(self, ctx: Context) -> object:
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            if isinstance(error.__cause__, ValidationError):
                error.message = f"{say_invalid(error.__cause__.errors()[0])}."
            raise

    def format_commands(self, ctx: Context, formatter: HelpFormatter) -> None:
        known = self.commands
        self.commands = {name: known[name] for name in known if name not in _RARE}
        super().format_commands(ctx, formatter)
        self.commands = known
        formatter.write_paragraph()
        formatter.write_text(f"Also, with --help: {', '.join(sorted(_RARE & known.keys()))}.")


app = typer.Typer(
    cls=_Screenful,
    help="Scheduled Events, self-hosted: tell machines what is about to happen.",
    no_args_is_help=True,
    rich_markup_mode=None,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command(short_help="Watch a roll-out go through a fleet.")(demo)
app.command()(serve)
for noun in (
    fleet, vm, scope, host, event, maintenance, schedule, gate, scenario, clock, notification,
    fault, emulator, token, db, config,
):  # fmt: skip
    app.add_typer(noun.app)
command(app, "calendar")(calendar)
command(app, "audit")(audit)
command(app, "doctor")(doctor)
command(app, "pause")(pause)
command(app, "resume")(resume)
app.command()(completion)


def _show_version(wanted: bool) -> None:  # noqa: FBT001 - typer calls it with the option's value
    if wanted:
        typer.echo(f"forewarn {forewarn.__version__}")
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
