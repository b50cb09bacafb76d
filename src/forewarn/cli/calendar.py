"""`forewarn calendar`: what is planned, as calendars read it."""

from typing import Annotated

import typer

from forewarn.cli.catalogue import alone
from forewarn.cli.output import print_text
from forewarn.cli.session import Session, command

app = alone()


@command(app, "calendar")
def calendar(
    session: Session,
    *,
    scope: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only events of this scope.")
    ] = None,
) -> None:
    """Print planned maintenance as an iCalendar.

    Example: forewarn calendar --scope web
    """
    query = {} if scope is None else {"scope": scope}
    session.show(session.text("calendar.ics", **query), print_text)
