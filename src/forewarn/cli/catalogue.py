"""The commands of `forewarn` and where they are: known without importing any of them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import typer


@dataclass(frozen=True, slots=True)
class Listed:
    """A noun with its verbs, or a command that stands alone, as the help lists it."""

    summary: str
    module: str = ""
    """Where it is, unless the module is called like the command."""
    is_noun: bool = False
    is_rare: bool = False
    """Whether the help only names it, so that it fits a screen."""
    is_for_tests: bool = False
    """Whether the help lists it with what tests of workloads need."""
    usual_verb: str = ""
    """The verb of a noun that has none on the command line: `forewarn emulator -- COMMAND`."""


def _noun(summary: str, *, is_rare: bool = False) -> Listed:
    return Listed(summary, is_noun=True, is_rare=is_rare)


def _for_tests(summary: str, usual_verb: str = "") -> Listed:
    return Listed(summary, is_noun=True, is_for_tests=True, usual_verb=usual_verb)


COMMANDS: Final[Mapping[str, Listed]] = {
    "demo": Listed("Watch a roll-out go through a fleet."),
    "serve": Listed("Run the server until stopped."),
    "relay": Listed("Serve polls on one host for a remote server.", is_rare=True),
    "open": Listed("Open the web console in a browser, signed in."),
    "calendar": Listed("Print planned maintenance in iCalendar format.", is_rare=True),
    "audit": Listed("List who did what, including refused requests.", is_rare=True),
    "doctor": Listed("Find problems with a server and how to fix them."),
    "status": Listed(
        "Show the server, its replicas, Maintenances and findings.", "server", is_rare=True
    ),
    "pause": Listed("Pause the server; it starts nothing until resumed.", "server", is_rare=True),
    "resume": Listed(
        "Resume a paused server; overdue work starts at once.", "server", is_rare=True
    ),
    "completion": Listed("Print a completion script for a shell.", is_rare=True),
    "version": Listed("Print the version.", is_rare=True),
    "fleet": _noun("Apply, export or show the fleet."),
    "vm": _noun("Add, change, move, remove and restart virtual machines."),
    "scope": _noun("Show and change how events are approved and announced.", is_rare=True),
    "host": _noun("Show, label, close, remove and set up hosts."),
    "event": _noun("Announce, follow and change events."),
    "maintenance": _noun("Plan, start and steer maintenance of many virtual machines."),
    "task": _noun("List what is carried out; settle what is unknown.", is_rare=True),
    "replica": _noun("List replicas; hand over, or forget one.", is_rare=True),
    "schedule": _noun("Start Maintenances automatically on recurring dates.", is_rare=True),
    "gate": _noun("List and test the gates between steps.", is_rare=True),
    "emulator": _for_tests("Run a program against a throw-away server.", usual_verb="run"),
    "conformance": _for_tests("Test and grade an event handler in any language.", usual_verb="run"),
    "scenario": _for_tests("Run timelines of events; record and replay real ones."),
    "clock": _for_tests("Show maintenance time, or advance it."),
    "fault": _for_tests("Inject faults for a virtual machine, to test its clients."),
    "notification": _noun("List notifications and their targets.", is_rare=True),
    "token": _noun("Create, list and revoke access tokens.", is_rare=True),
    "db": _noun("Back up, check, copy, restore and upgrade the database.", is_rare=True),
    "config": _noun("Show settings, and where they come from.", is_rare=True),
}
"""In the order of the help. Each module has an `app`, with the verbs of a noun, or with itself."""


def noun(name: str, epilog: str | None = None) -> typer.Typer:
    """Return the noun *name*, without its verbs yet; its help ends with the *epilog*."""
    return _group(name, COMMANDS[name].summary, epilog)


def alone() -> typer.Typer:
    """Return what takes commands that stand alone."""
    return _group()


def _group(
    name: str | None = None, summary: str | None = None, epilog: str | None = None
) -> typer.Typer:
    return typer.Typer(
        name=name,
        help=summary,
        epilog=epilog,
        no_args_is_help=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )
