"""Gates, as an operator tries them before a roll-out."""

from collections.abc import Iterable

from forewarn.domain.errors import NotFoundError, says
from forewarn.domain.names import name_key
from forewarn.operations.context import Context
from forewarn.operations.recording import record_audit
from forewarn.ports.store import Transaction


@says("Unknown gate {gate!r}; the server's gate file does not define it.")
class GateNotFoundError(NotFoundError):
    """A gate that is not in the server's gate file."""

    gate: str


def prepare_gate_test(tx: Transaction, context: Context, gates: Iterable[str], name: str) -> str:
    """Return the name of the gate called *name*, in any case, and note that it is asked."""
    gate = find_gate(gates, name)
    record_audit(tx, context, "gate test", gate)
    return gate


def find_gate(gates: Iterable[str], name: str) -> str:
    """Return the one of *gates* that is called *name*, in any case."""
    for gate in gates:
        if name_key(gate) == name_key(name):
            return gate
    raise GateNotFoundError(name)
