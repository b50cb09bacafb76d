"""`forewarn audit`: who did what, from where, and who was refused."""

from typing import Annotated, Final

import typer

from forewarn.cli.catalogue import alone
from forewarn.cli.output import Columns, print_table, wall_time_of
from forewarn.cli.session import Session, command
from forewarn.cli.times import past_option

app = alone()

_COLUMNS: Final[Columns] = {
    "AT": lambda entry: wall_time_of(entry["at"]),
    "WHO": "who",
    "ACTOR": "actor",
    "WHERE": "where",
    "ACTION": "action",
    "SUBJECT": "subject",
    "OUTCOME": "outcome",
    "DETAIL": "detail",
}


@command(app, "audit")
def audit(
    session: Session,
    *,
    who: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only actions by this caller.")
    ] = None,
    action: Annotated[
        str | None,
        typer.Option(metavar="ACTION", help="Only this action, such as 'event approve'."),
    ] = None,
    since: Annotated[str | None, past_option("Since")] = None,
    limit: Annotated[
        int | None, typer.Option(metavar="N", min=1, max=10_000, help="Only the newest N.")
    ] = None,
) -> None:
    """List who did what, from where, and who was refused.

    Example: forewarn audit --who alice
    """
    filters = {"who": who, "action": action, "since": since}
    given = {name: value for name, value in filters.items() if value is not None}
    answer = session.list("audit", "audit", limit=limit, **given)
    session.show(answer, lambda got: print_table(got["audit"], _COLUMNS))
