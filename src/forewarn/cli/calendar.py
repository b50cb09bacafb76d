"""`forewarn calendar`: what is planned, as calendars read it."""

from typing import Final

from forewarn.cli.catalogue import alone
from forewarn.cli.options import Given, taking, text
from forewarn.cli.output import print_text
from forewarn.cli.session import Session, command

app = alone()

_FILTERS: Final = {"scope": text("NAME", "Only events of this scope.")}


@command(app, "calendar")
@taking(_FILTERS)
def calendar(session: Session, filters: Given) -> None:
    """Print planned maintenance in iCalendar format.

    Example: forewarn calendar --scope web
    """
    found = session.get_bytes("calendar.ics", **filters)
    session.show(found.decode(errors="replace"), print_text)
