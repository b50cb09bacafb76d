"""`forewarn fleet`: all virtual machines at once."""

import json
import re
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from forewarn.cli.errors import CommandError, ExitCode, confirm_on_terminal
from forewarn.cli.event import Yes
from forewarn.cli.files import read_text
from forewarn.cli.fleet_changes import print_change
from forewarn.cli.output import Row, print_table
from forewarn.cli.rehearsal import DryRun, show_rehearsed
from forewarn.cli.session import RefusedError, Session, command, noun
from forewarn.cli.vm import COLUMNS
from forewarn.operations.fleet import line_of, write_fleet_file

app = noun("fleet", "Declare the whole fleet, or see it.")


@command(app, "apply")
def apply(
    session: Session,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The fleet file.")],
    *,
    prune: Annotated[bool, typer.Option("--prune", help="Remove what it leaves out.")] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Make the fleet as a file declares it, all of it or nothing.

    Example: forewarn fleet apply fleet.toml --dry-run
    """
    text = read_text(file, command="fleet apply")
    fleet = _decode(file, text)
    if prune and not dry_run:
        confirm_on_terminal(f"Remove every virtual machine that {file} leaves out?", yes=yes)
    body = {"fleet": fleet, "prune": prune, "dry_run": dry_run}
    try:
        with _shown_progress() as note:
            answer = session.post_followed("fleet", body=body, note=note)
    except RefusedError as refusal:
        raise _with_line(refusal, file, text) from None
    if dry_run:
        show_rehearsed(session, answer, print_change)
    else:
        session.show(answer, print_change)


@command(app, "export")
def export(session: Session) -> None:
    """Write the fleet as a fleet file; applied again, it changes nothing.

    Example: forewarn fleet export > fleet.toml
    """
    session.show(session.get("fleet"), lambda fleet: typer.echo(write_fleet_file(fleet), nl=False))


@command(app, "show")
def show(session: Session) -> None:
    """Show every virtual machine and where it is; as JSON, in the words of the fleet file.

    Example: forewarn fleet show
    """
    session.show(session.get("fleet"), lambda _: _print_fleet(session))


def _print_fleet(session: Session) -> None:
    print_table(session.list("virtual_machines", "virtual-machines")["virtual_machines"], COLUMNS)


@contextmanager
def _shown_progress() -> Iterator[Callable[[Row], None]]:
    """Give what shows how far it is, on a terminal, and take it away at the end."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda _: None
        return
    with console.status("sending") as status:
        yield lambda row: status.update(f"{row['step']} {row['entries']:,}")


def _decode(file: Path, text: str) -> object:
    try:
        fleet = tomllib.loads(text)
        json.dumps(fleet)
    except tomllib.TOMLDecodeError as error:
        found = re.search(r"\(at line ([0-9]+)", str(error))
        line = found[1] if found else len(text.splitlines())
        place, problem = f"{file}:{line}", f"This is not TOML: {error}."
    except TypeError:
        place, problem = str(file), "A fleet has no dates or times; write text in quotes."
    else:
        return fleet
    raise CommandError(problem, code=ExitCode.REFUSED, place=place)


def _with_line(refusal: RefusedError, file: Path, text: str) -> CommandError:
    problem = refusal.problem
    scope = str(problem.get("scope", "")).split("/")
    names = (problem.get("entry"), problem.get("vm"), problem.get("name"), *scope[1:2])
    entry = next((str(name) for name in names if name), None)
    key = problem.get("key") or problem.get("setting")
    line = line_of(text, entry, None if key is None else str(key))
    place = str(file) if line is None else f"{file}:{line}"
    return CommandError(str(refusal), code=refusal.code, hint=refusal.hint, place=place)
