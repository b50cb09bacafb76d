"""Misbehaviour towards virtual machines, for those who show it and those who set it."""

from collections.abc import Mapping
from typing import Protocol

from forewarn.domain.fault import Fault, FaultKind
from forewarn.domain.names import VmName
from forewarn.protocol.document import Document


class Faults(Protocol):
    """The faults there are, as the metadata endpoint asks for them; from any thread."""

    def __contains__(self, vm: object) -> bool:
        """Tell whether the virtual machine of this name has any; asked for every poll."""

    def take(self, vm: VmName, kind: FaultKind) -> Fault | None:
        """Return *vm*'s fault of *kind*, if there is one, for one request: that uses it up."""

    def show(self, vm: VmName, document: Document) -> Document:
        """Return what *vm* sees instead of *document*, the current one of its scope, for one poll.

        That uses up what may be shown only so many times.
        """


class FaultControl(Protocol):
    """The faults, as operators and scenarios set, see and end them."""

    def all(self) -> Mapping[VmName, tuple[Fault, ...]]:
        """Return every fault with the times it has left, by virtual machine."""

    def put(self, vm: VmName, fault: Fault) -> None:
        """Set a fault; it replaces one of the same kind."""

    def remove(self, vm: VmName, kind: FaultKind | None = None) -> None:
        """Behave again: end *vm*'s fault of *kind*, or every one it has."""
