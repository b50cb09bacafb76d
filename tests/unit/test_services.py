"""What a service works with may be secret, and what it remembers is its own."""

from dataclasses import fields

import pytest

from forewarn.emulator.faults import MemoryFaults
from forewarn.executors.processes import ProcessRunner
from forewarn.executors.webhook import WebhookRunner
from forewarn.gates.asked_gates import AskedGates
from forewarn.gates.http import AddressGate
from forewarn.metadata.verbs import StoreVerbs
from forewarn.notifications.outbox import Courier

SERVICES = (
    AddressGate,
    AskedGates,
    Courier,
    MemoryFaults,
    ProcessRunner,
    StoreVerbs,
    WebhookRunner,
)


@pytest.mark.parametrize("service", SERVICES)
def test_service_does_not_print_what_it_works_with(service: type) -> None:
    assert "__repr__" not in vars(service)


@pytest.mark.parametrize("service", SERVICES)
def test_nobody_hands_a_service_what_it_remembers(service: type) -> None:
    assert [field.name for field in fields(service) if field.name[0] == "_" and field.init] == []
