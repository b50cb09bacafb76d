"""`forewarn clock`: maintenance time."""

from dataclasses import replace
from typing import Annotated, Final

from forewarn.cli.catalogue import noun
from forewarn.cli.options import argument
from forewarn.cli.output import Columns, fields_of, time_of
from forewarn.cli.session import Session, command
from forewarn.cli.times import DURATION, check_duration

app = noun("clock")

_FIELDS: Final[Columns] = {"now": lambda row: time_of(row["now"]), "clock": "kind"}


@command(app, "show")
def show(session: Session) -> None:
    """Show maintenance time.

    Example: forewarn clock show
    """
    session.show(session.get("clock"), fields_of(_FIELDS))


@command(app, "advance")
def advance(
    session: Session,
    duration: Annotated[str, argument(DURATION, "30s, 15m or 1h30m.", callback=check_duration)],
) -> None:
    """Advance virtual time; everything that falls due happens.

    Example: forewarn clock advance 15m
    """
    # However much falls due in it has to be waited for.
    body = {"duration": duration}
    asking = replace(session, patience=None)
    answer = asking.post("clock", "advance", body=body, takes_key=False)
    session.show(answer, fields_of(_FIELDS))
