"""`forewarn audit`: who did what, from where, and who was refused."""

from typing import Final

from forewarn.cli.catalogue import alone
from forewarn.cli.options import Flag, Given, Limit, taking, text
from forewarn.cli.output import Columns, table_of, wall_time_of
from forewarn.cli.session import Session, command
from forewarn.cli.times import past_option

app = alone()

_COLUMNS: Final[Columns] = {
    "at": lambda entry: wall_time_of(entry["at"]),
    "who": "who",
    "actor": "actor",
    "where": "where",
    "action": "action",
    "subject": "subject",
    "outcome": "outcome",
    "detail": "detail",
}
_FILTERS: Final = {
    "who": text("NAME", "Only actions by this caller."),
    "action": text("ACTION", "Only this action, such as 'event approve'."),
    "since": Flag(option=past_option("Only entries since")),
}


@command(app, "audit")
@taking(_FILTERS)
def audit(session: Session, filters: Given, *, limit: Limit = None) -> None:
    """List who did what, including refused requests.

    Example: forewarn audit --who alice
    """
    session.show(session.list("audit", limit=limit, **filters), table_of("audit", _COLUMNS))
