"""How far a Maintenance has come, as bars that move while somebody looks."""

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn

from forewarn.cli.output import Row
from forewarn.protocol.controls import printable

_MOST_BARS: Final = 12
"""More would not fit on a small terminal."""


@dataclass(frozen=True, slots=True)
class ProgressBar:
    """How many of the machines of a scope, or of all, are done."""

    title: str
    done: int
    total: int
    is_under_way: bool


def stretches(row: Row) -> list[ProgressBar]:
    """Return how far it is altogether, and then in each scope that is under way or to come."""
    done: dict[str, int] = {}
    total: dict[str, int] = {}
    under_way: set[str] = set()
    for scope_id, machines, is_done in _parts(row):
        total[scope_id] = total.get(scope_id, 0) + machines
        done[scope_id] = done.get(scope_id, 0) + machines * is_done
    for event in row["events"]:
        if event["ended_at"] is None:
            under_way.add(event["scope_id"])
    scopes = [
        ProgressBar(scope_id, done[scope_id], total[scope_id], scope_id in under_way)
        for scope_id in total
        if done[scope_id] < total[scope_id]
    ]
    scopes.sort(key=lambda scope: not scope.is_under_way)
    everything = ProgressBar(
        row["status_text"], sum(done.values()), sum(total.values()), is_under_way=bool(under_way)
    )
    return [everything, *scopes]


@contextmanager
def shown_as_bars(console: Console) -> Generator[Callable[[Row], None]]:
    """Draw a bar for all of it and for each scope that is under way."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        bars: list[TaskID] = []

        def tell(row: Row) -> None:
            shown = stretches(row)[:_MOST_BARS]
            while len(bars) < len(shown):
                bars.append(progress.add_task(""))
            for number, bar in enumerate(bars):
                if number < len(shown):
                    it = shown[number]
                    progress.update(
                        bar,
                        description=escape(printable(it.title)),
                        completed=it.done,
                        total=it.total,
                        visible=True,
                    )
                else:
                    progress.update(bar, visible=False)

        yield tell


def _parts(row: Row) -> Iterator[tuple[str, int, bool]]:
    for event in row["events"]:
        yield event["scope_id"], len(event["resources"]), event["ended_at"] is not None
    for step in row["remaining"]:
        for share in step["shares"]:
            yield share["scope_id"], len(share["resources"]), False
