"""Which hosts have work of their own, and how its tasks are told apart."""

import pytest

from forewarn.domain.host_work import HostTask, HostTaskKind, HostWorkRule, work_for
from forewarn.domain.names import HostName, MaintenanceId, OperationId, VmName
from forewarn.domain.topology import Host
from forewarn.protocol.vocabulary import EventType

HOST = Host(name=HostName("kvm-1"), labels={"cluster": "a", "room": "north"})


@pytest.mark.parametrize(
    ("rule", "fits"),
    [
        (HostWorkRule(), True),
        (HostWorkRule(hosts=("kvm-1",)), True),
        (HostWorkRule(hosts=("KVM-1",)), True),
        (HostWorkRule(hosts=("other", "kvm-*")), True),
        (HostWorkRule(hosts=("kvm-2",)), False),
        (HostWorkRule(labels={"cluster": "a"}), True),
        (HostWorkRule(labels={"cluster": "A"}), False),
        (HostWorkRule(labels={"cluster": "a", "room": "south"}), False),
        (HostWorkRule(hosts=("kvm-*",), labels={"cluster": "a"}), True),
        (HostWorkRule(hosts=("kvm-*",), labels={"cluster": "b"}), False),
        (HostWorkRule(hosts=("other",), labels={"cluster": "a"}), False),
    ],
)
def test_rule_is_for_hosts_of_its_names_and_labels(rule: HostWorkRule, *, fits: bool) -> None:
    assert rule.fits(HOST) is fits


def test_first_rule_that_fits_counts() -> None:
    other, first, second = (
        HostWorkRule(hosts=("other",)),
        HostWorkRule(hosts=("kvm-*",)),
        HostWorkRule(has_verify=True),
    )

    assert work_for((other, first, second), HOST) is first
    assert work_for((other,), HOST) is None
    assert work_for((), HOST) is None


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (HostTaskKind.WORK, "work"),
        (HostTaskKind.VERIFY, "verify-3"),
        (HostTaskKind.RETURN, "return-web-0"),
    ],
)
def test_task_has_a_name_within_its_operation(kind: HostTaskKind, name: str) -> None:
    task = HostTask(
        operation_id=OperationId("O1"),
        maintenance_id=MaintenanceId("M1"),
        event_type=EventType.REBOOT,
        host=HOST.name,
        kind=kind,
        attempt=3,
        vm=VmName("web-0"),
    )

    assert task.name == name
