"""Options of commands: how they are declared, those that several have, and tables of flags.

What the flags of a table say goes to the control API under their keys, as far as it was given.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias

import typer

from forewarn.cli.times import duration_option
from forewarn.domain.limits import FASTEST
from forewarn.emulator.variables import METADATA_ADDRESS
from forewarn.protocol.vocabulary import EventType

Given: TypeAlias = dict[str, Any]
"""What was given, by the names of the control API."""
REQUIRED: Final = inspect.Parameter.empty


def argument(metavar: str, summary: str, **more: Any) -> Any:
    """Return an argument."""
    return typer.Argument(metavar=metavar, help=summary, **more)


def option(metavar: str, summary: str, *names: str, **more: Any) -> Any:
    """Return an option that takes a value; without *names* it is called as its parameter is."""
    return typer.Option(*names, metavar=metavar, help=summary, **more)


def switch(summary: str, *names: str) -> Any:
    """Return an option that takes no value."""
    return typer.Option(*names, help=summary)


def keyword(name: str, annotation: Any, default: object = None) -> inspect.Parameter:
    """Return a parameter for the signature of a command."""
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, kind, default=default, annotation=annotation)


def accepting(
    *options: inspect.Parameter,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a verb *options* in the place of its `**flags`."""

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        every = inspect.signature(function).parameters.values()
        own = [each for each in every if each.kind is not each.VAR_KEYWORD]
        function.__dict__["__signature__"] = inspect.Signature([*own, *options])
        return function

    return decorate


YES: Final = keyword(
    "yes", Annotated[bool, switch("Do not ask for confirmation.", "--yes", "-y")], default=False
)
DRY_RUN: Final = keyword(
    "dry_run",
    Annotated[bool, switch("Show what would happen; change nothing.", "--dry-run")],
    default=False,
)
WAIT: Final = keyword(
    "wait",
    Annotated[bool, switch("Wait until the event or Maintenance ends.", "--wait")],
    default=False,
)
TIMEOUT: Final = keyword(
    "timeout", Annotated[str | None, duration_option("Timeout for waiting; the work continues.")]
)
NETNS: Final = keyword(
    "netns",
    Annotated[
        bool, switch(f"Serve at {METADATA_ADDRESS} in a network namespace (Linux).", "--netns")
    ],
    default=False,
)
BEGINS: Final = (DRY_RUN, WAIT, TIMEOUT)
"""What commands take that begin something."""

ConfigFile = Annotated[Path | None, option("FILE", "Settings file (default: forewarn.toml).")]
Limit = Annotated[int | None, option("N", "Only the newest N.", min=1, max=10_000)]


def speed_option(divided: str) -> Any:
    """Return the option that says by what *divided* is divided."""
    return option("N", f"Divide {divided} by this.", min=1, max=FASTEST)


def as_typed(typed: Any) -> Any:
    """Return *typed*."""
    return typed


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """One flag of a table: its type, how it is declared, and what it says to the control API.

    Without a *default* nothing is said unless it is given. *read* turns what was typed into what
    is sent under *key*, which is the name of the flag unless it is given.
    """

    kind: Any = str
    option: Any
    key: str = ""
    default: object = None
    read: Callable[[Any], object] = as_typed

    def declare(self, name: str) -> inspect.Parameter:
        """Return the parameter of that *name*."""
        kind = self.kind | None if self.default is None else self.kind
        return keyword(name, Annotated[kind, self.option], self.default)


def text(metavar: str, summary: str, *names: str, key: str = "", **more: Any) -> Flag:
    """Return a flag that takes a text."""
    return Flag(option=option(metavar, summary, *names, **more), key=key)


def toggle(name: str, summary: str) -> Flag:
    """Return a flag that is said or not."""
    return Flag(kind=bool, option=switch(summary, name), default=False)


def some(
    metavar: str,
    summary: str,
    key: str = "",
    *,
    read: Callable[[Any], object] = as_typed,
    **more: Any,
) -> Flag:
    """Return a flag that can be repeated."""
    return Flag(kind=list[str], option=option(metavar, summary, **more), key=key, read=read)


AS_IS: Final = toggle("--as-is", "Record existing placements, even on closed or busy hosts.")
EVENT_TYPE: Final = Flag(
    kind=EventType,
    option=option("TYPE", f"{', '.join(EventType)}.", "--type", case_sensitive=False),
    default=REQUIRED,
)


def taking(flags: Mapping[str, Flag]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a verb *flags* before its own options, and hand it what was given of them."""

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        session, _, *own = inspect.signature(function).parameters.values()

        @wraps(function)
        def run(session: Any, **typed: Any) -> None:
            given = {name: typed.pop(name) for name in flags}
            function(session, _read(flags, given), **typed)

        declared = [flag.declare(name) for name, flag in flags.items()]
        run.__dict__["__signature__"] = inspect.Signature([session, *declared, *own])
        return run

    return decorate


def _read(flags: Mapping[str, Flag], typed: Mapping[str, Any]) -> Given:
    # What can be repeated is an empty list, not None, when it is not given.
    given = {name: value for name, value in typed.items() if value not in (None, [])}
    return {flags[name].key or name: flags[name].read(value) for name, value in given.items()}
