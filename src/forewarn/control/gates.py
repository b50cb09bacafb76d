"""/gates: what can be asked between two steps of a Maintenance. They are set in a file only."""

from fastapi import APIRouter

from forewarn.control.bodies import BodyRoute
from forewarn.control.caller import Operating, Viewing
from forewarn.desk.schemas import View
from forewarn.domain.gate import GateStatus
from forewarn.operations.gates import prepare_gate_test

router = APIRouter(tags=["gates"], route_class=BodyRoute)


class GateView(View):
    """A gate, without its address or command, which may be secret."""

    name: str
    kind: str


class GatesView(View):
    """Every gate, in the order of the file."""

    gates: tuple[GateView, ...]


class GateAnswerView(View):
    """The answer of a gate."""

    gate: str
    status: GateStatus
    output: str


@router.get("/gates")
def list_gates(caller: Viewing) -> GatesView:
    """Return every gate."""
    kinds = caller.services.gates.kinds()
    return GatesView(gates=tuple(GateView(name=name, kind=kind) for name, kind in kinds.items()))


@router.post("/gates/{name}/test", name="gate test")
def test_gate(caller: Operating, name: str) -> GateAnswerView:
    """Ask a gate now, for no particular Maintenance, and return its answer."""
    gates = caller.services.gates
    with caller.services.slow_verbs.place():
        gate = caller.write(lambda tx, context: prepare_gate_test(tx, context, gates.kinds(), name))
        answer = gates.test(gate)
    return GateAnswerView(gate=gate, status=answer.status, output=answer.output)
