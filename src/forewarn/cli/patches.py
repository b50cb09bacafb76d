"""Options that become a JSON merge patch: what is given changes, and an empty text clears."""

from collections.abc import Mapping, Sequence
from typing import Annotated

import typer

from forewarn.cli.errors import CommandError, ExitCode

Labels = Annotated[
    list[str] | None, typer.Option("--label", metavar="KEY=VALUE", help="A label; KEY= removes it.")
]


def make_patch(command: str, **given: object) -> dict[str, object]:
    """Return the fields that are *given*, null where they are empty, or refuse to change nothing.

    A list of KEY=VALUE changes these keys only.
    """
    patch = {name: _value(value) for name, value in given.items() if value is not None}
    if not patch:
        hint = f"try: forewarn {command} --help"
        raise CommandError("Give at least one option to change.", code=ExitCode.USAGE, hint=hint)
    return patch


def read_pairs(option: str, pairs: Sequence[str] | None) -> Mapping[str, str | None] | None:
    """Return the KEY=VALUE of an *option*, null where the value is empty, which removes the key."""
    if not pairs:
        return None
    split = [pair.partition("=") for pair in pairs]
    for key, equals, _ in split:
        if not key or not equals:
            message = f"{option} {key!r} is not KEY=VALUE."
            hint = f"try: {option} rack=a, or {option} rack= to remove it"
            raise CommandError(message, code=ExitCode.USAGE, hint=hint)
    return {key: value or None for key, _, value in split}


def _value(value: object) -> object:
    if value == [""]:
        return []
    return None if value == "" else value
