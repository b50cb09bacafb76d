"""The fleet of the demo is one that a Maintenance of its hosts can walk."""

from collections import defaultdict
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from forewarn.cli.demonstration.fleet import (
    APPROVALS,
    HOSTS,
    MEMBERS,
    Behaviour,
    DemoMachine,
    fleet_file,
)
from forewarn.cli.demonstration.machines import answer
from forewarn.cli.demonstration.picture import Doing
from forewarn.client import Change, ChangeKind, Event, EventId, EventStatus, EventType
from forewarn.domain.names import HostName, VmName
from forewarn.domain.policy import ApprovalPolicy
from forewarn.files.fleet import read_fleet_file

MEMBER = DemoMachine(
    name=VmName("b"),
    host=HostName("kvm-1"),
    behaviour=Behaviour.QUICK,
    drain=timedelta(minutes=1),
    scope=None,
    update_domain=0,
)
EVENT = Event(
    event_id=EventId("00000000-0000-4000-8000-000000000001"),
    event_status=EventStatus.SCHEDULED,
    event_type=EventType.FREEZE,
    resources=("a", "b"),
    not_before=datetime(2026, 1, 5, 8, tzinfo=UTC),
)


def test_file_declares_every_member() -> None:
    fleet = read_fleet_file(fleet_file())

    assert [(each.vm.name, each.vm.host) for each in fleet.virtual_machines] == [
        (member.name, member.host) for member in MEMBERS
    ]
    assert {scope.scope_id: scope.policy.approval for scope in fleet.scopes} == APPROVALS
    assert set(APPROVALS.values()) == set(ApprovalPolicy)


def test_no_host_carries_two_update_domains_of_a_scope() -> None:
    carried = defaultdict(set)
    for member in MEMBERS:
        if member.scope:
            carried[member.host, member.scope].add(member.update_domain)

    assert all(len(domains) == 1 for domains in carried.values())
    assert len(HOSTS) == 4


@pytest.mark.parametrize(
    ("behaviour", "name", "doing"),
    [
        (Behaviour.QUICK, "b", Doing.DRAINING),
        (Behaviour.SLOW, "b", Doing.DRAINING),
        (Behaviour.LEADER, "a", Doing.DRAINING),
        (Behaviour.LEADER, "b", Doing.NOT_LEADING),
        (Behaviour.NEVER, "a", Doing.SILENT),
    ],
)
def test_announcement_is_answered_as_the_behaviour_says(
    behaviour: Behaviour, name: str, doing: Doing
) -> None:
    member = replace(MEMBER, name=VmName(name), behaviour=behaviour)
    change = Change(kind=ChangeKind.SCHEDULED, event=EVENT, document_incarnation=1)

    assert answer(member, change) is doing


@pytest.mark.parametrize("kind", [ChangeKind.COMPLETED, ChangeKind.CANCELED, ChangeKind.GONE])
def test_event_that_has_ended_is_forgotten(kind: ChangeKind) -> None:
    assert answer(MEMBER, Change(kind=kind, event=EVENT, document_incarnation=2)) is None


def test_impact_is_borne_by_everybody() -> None:
    change = Change(kind=ChangeKind.STARTED, event=EVENT, document_incarnation=2)

    assert answer(MEMBER, change) is Doing.IN_IMPACT
