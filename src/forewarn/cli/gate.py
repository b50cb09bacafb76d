"""`forewarn gate`: what can be asked between the steps of a maintenance."""

from dataclasses import replace
from typing import Annotated, Final

import typer

from forewarn.cli.catalogue import noun
from forewarn.cli.errors import ExitCode
from forewarn.cli.options import argument
from forewarn.cli.output import Columns, Row, print_line, table_of
from forewarn.cli.session import TEST_PATIENCE, Session, command

app = noun("gate")

_COLUMNS: Final[Columns] = {"gate": "name", "kind": "kind"}


@command(app, "list")
def list_all(session: Session) -> None:
    """List the gates of the server.

    Example: forewarn gate list
    """
    session.show(session.get("gates"), table_of("gates", _COLUMNS))


@command(app, "test")
def test(session: Session, gate: Annotated[str, argument("GATE", "Name of the gate.")]) -> None:
    """Ask a gate now and show its answer; exit with 1 if shut.

    Example: forewarn gate test smoke
    """
    asking = replace(session, patience=TEST_PATIENCE)
    answer = asking.post("gates", gate, "test", takes_key=False)
    session.show(answer, _print)
    if answer["status"] != "open":
        raise typer.Exit(ExitCode.FAILED)


def _print(answer: Row) -> None:
    print_line(f"{answer['gate']} is {answer['status']}")
    for line in answer["output"].splitlines():
        print_line(f"  {line}")
