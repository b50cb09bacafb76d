"""--dry-run: the server says what would come of it, and nothing does."""

from collections.abc import Callable
from typing import Annotated, Any

import typer

from forewarn.cli.output import print_line
from forewarn.cli.session import Session

DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would happen; change nothing.")]


def show_changed(
    session: Session, answer: Any, print_it: Callable[[Any], None], *, dry_run: bool
) -> None:
    """Show the *answer* to a change, or to a dry run of it."""
    if dry_run:
        show_rehearsed(session, answer, print_it)
    else:
        session.show(answer, print_it)


def show_rehearsed(session: Session, answer: Any, print_it: Callable[[Any], None]) -> None:
    """Show the *answer* to a dry run; on a terminal or in a pipe, say that it was one."""

    def print_and_say(got: Any) -> None:
        print_it(got)
        print_line("Nothing was written.")

    session.show(answer, print_and_say)
