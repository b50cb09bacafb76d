"""What a forked process must not share with its parent: connections, and locks that are held."""

import os
from typing import Protocol
from weakref import WeakSet


class Renewable(Protocol):
    """Something that has connections or locks."""

    def renew(self) -> None:
        """Begin anew in a child, where no other thread is left, without a word to the server."""


def renew_after_fork(living: Renewable) -> None:
    """Let *living* begin anew in every child that is forked as long as it lives."""
    _living.add(living)


_living: WeakSet[Renewable] = WeakSet()


def _renew_all() -> None:
    for living in tuple(_living):
        living.renew()


if hasattr(os, "register_at_fork"):  # Windows does not fork
    os.register_at_fork(after_in_child=_renew_all)
