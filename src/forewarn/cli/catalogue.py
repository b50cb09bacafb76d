"""The commands of `forewarn` and where they are: known without importing any of them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import typer


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """A noun with its verbs, or a command that stands alone, as the help lists it."""

    summary: str
    module: str
    is_noun: bool = False
    is_rare: bool = False
    """Whether the help only names it, so that it fits a screen."""


def _alone(summary: str, module: str, *, is_rare: bool = False) -> Listed:
    return Listed(summary=summary, module=module, is_rare=is_rare)


def _noun(summary: str, module: str, *, is_rare: bool = False) -> Listed:
    return Listed(summary=summary, module=module, is_noun=True, is_rare=is_rare)


COMMANDS: Final[Mapping[str, Listed]] = {
    "demo": _alone("Watch a roll-out go through a fleet.", "demo"),
    "serve": _alone("Serve virtual machines and operators until stopped.", "serve"),
    "calendar": _alone("Print planned maintenance as an iCalendar.", "calendar", is_rare=True),
    "audit": _alone("List who did what, from where, and who was refused.", "audit"),
    "doctor": _alone("Find what keeps a server from working, and how to fix it.", "doctor"),
    "pause": _alone("Pause the server: it begins nothing until resumed.", "server", is_rare=True),
    "resume": _alone("Resume a paused server, with everything due by now.", "server", is_rare=True),
    "completion": _alone(
        "Print a script that makes a shell complete commands and names.",
        "completion",
        is_rare=True,
    ),
    "version": _alone("Print the version.", "version", is_rare=True),
    "fleet": _noun("Apply, export or show the fleet.", "fleet"),
    "vm": _noun("Add, change, move, remove and restart virtual machines.", "vm"),
    "scope": _noun("See and change how events are approved and announced.", "scope", is_rare=True),
    "host": _noun("See, label, close and remove hosts.", "host"),
    "event": _noun("Announce, follow and change events.", "event"),
    "maintenance": _noun(
        "Plan, start and steer maintenance of many virtual machines.", "maintenance"
    ),
    "schedule": _noun("Start Maintenances automatically on recurring dates.", "schedule"),
    "gate": _noun("List and test the gates between steps.", "gate", is_rare=True),
    "scenario": _noun("Run a timeline of events, to test a workload.", "scenario"),
    "clock": _noun("Show maintenance time, or advance it.", "clock", is_rare=True),
    "notification": _noun("List notifications and their targets.", "notification"),
    "fault": _noun(
        "Inject faults for a virtual machine, to test its clients.", "fault", is_rare=True
    ),
    "emulator": _noun(
        "Run programs as if they were in a virtual machine.", "emulator", is_rare=True
    ),
    "token": _noun("Create, list and revoke access tokens.", "token", is_rare=True),
    "db": _noun("Back up, check, restore and upgrade the database.", "db", is_rare=True),
    "config": _noun("Show settings, and where they come from.", "config", is_rare=True),
}
"""In the order of the help. Each module has an `app`, with the verbs of a noun, or with itself."""


def noun(name: str) -> typer.Typer:
    """Return the noun *name*, without its verbs yet."""
    return _group(name, COMMANDS[name].summary)


def alone() -> typer.Typer:
    """Return what takes commands that stand alone."""
    return _group(None, None)


def _group(name: str | None, summary: str | None) -> typer.Typer:
    return typer.Typer(
        name=name,
        help=summary,
        no_args_is_help=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )
