"""A gate is found by its name, in any case."""

import pytest

from forewarn.operations.context import Context
from forewarn.operations.gates import GateNotFoundError, prepare_gate_test
from forewarn.ports.store import Store


def test_gate_that_is_tried_is_in_the_audit(store: Store, operator: Context) -> None:
    found = store.write(lambda tx: prepare_gate_test(tx, operator, ["smoke", "Change"], "CHANGE"))

    assert found == "Change"
    (entry,) = store.read(lambda reading: reading.audit(action="gate test"))
    assert (entry.who, entry.subject) == (operator.who, "Change")


def test_gate_that_there_is_not_is_refused(store: Store, operator: Context) -> None:
    with pytest.raises(GateNotFoundError, match="Unknown gate 'nobody'"):
        store.write(lambda tx: prepare_gate_test(tx, operator, ["smoke"], "nobody"))
