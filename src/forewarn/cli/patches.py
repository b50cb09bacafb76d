"""Options that become a JSON merge patch: what is given changes, and an empty text clears."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from forewarn.cli.errors import CommandError, ExitCode
from forewarn.cli.options import Flag, Given, some


def make_patch(command: str, given: Given) -> dict[str, object]:
    """Return the fields that are *given*, null where they are empty, or refuse to change nothing.

    A list of KEY=VALUE changes these keys only.
    """
    if not given:
        hint = f"try: forewarn {command} --help"
        raise CommandError("Give at least one option to change.", code=ExitCode.USAGE, hint=hint)
    return {name: _value(value) for name, value in given.items()}


def _read_pairs(option: str) -> Callable[[Sequence[str]], Mapping[str, str | None]]:
    """Return what reads the KEY=VALUE of an *option*; an empty value is null, and removes."""

    def read(pairs: Sequence[str]) -> Mapping[str, str | None]:
        split = [pair.partition("=") for pair in pairs]
        for key, equals, _ in split:
            if not key or not equals:
                message = f"{option} {key!r} is not KEY=VALUE."
                hint = f"try: {option} rack=a, or {option} rack= to remove it"
                raise CommandError(message, code=ExitCode.USAGE, hint=hint)
        return {key: value or None for key, _, value in split}

    return read


def pairs(option: str, summary: str, key: str = "") -> Flag:
    """Return a flag that takes KEY=VALUE, several times."""
    return some("KEY=VALUE", summary, key, read=_read_pairs(option))


LABELS: Final = pairs("--label", "Label to set; KEY= removes it.", "labels")


def _value(value: object) -> object:
    if value == [""]:
        return []
    return None if value == "" else value
