import pytest

from forewarn.protocol.document import Event
from forewarn.protocol.identity import Identity
from forewarn.protocol.vocabulary import EventStatus, EventType, event_id


def event_for(*resources: str) -> Event:
    return Event(
        event_id=event_id("c7061bac-afdc-4513-b24b-aa5f13a16123"),
        event_status=EventStatus.SCHEDULED,
        event_type=EventType.REBOOT,
        resources=resources,
    )


@pytest.mark.parametrize(
    ("me", "resource"),
    [
        ("web-0", "web-0"),
        ("web-0", "WEB-0"),
        ("Web-0", "web-0"),
        ("web-0", "_web-0"),
        ("_web-0", "web-0"),
        ("web-0.shop.example", "web-0"),
        ("web-0.shop.example", "web-0.shop.example"),
        ("FrontEnd_IN_0", "FrontEnd_IN_0"),
        ("vmss_18", "vmss_18"),
        ("vmss_18", "vmss00000i"),
        ("vmss_18", "VMSS00000I"),
        ("vmss00000i", "vmss_18"),
        ("vmss00000i.internal.example", "vmss_18"),
        ("vmss00000I", "_vmss_18"),
        ("vmss_0", "vmss000000"),
        ("vmss_1", "vmss000001"),
        ("vmss_36", "vmss000010"),
        ("vmss000010", "vmss_36"),
        ("vmss_1679615", "vmss00zzzz"),
        ("vmss00zzzz", "vmss_1679615"),
        ("aks-pool-123-vmss_25", "aks-pool-123-vmss00000p"),
    ],
)
def test_event_affects_a_machine_by_any_of_its_names(me: str, resource: str) -> None:
    assert event_for("other", resource).affects(me)


@pytest.mark.parametrize(
    ("me", "resource"),
    [
        ("web-1", "web-10"),
        ("web-10", "web-1"),
        ("web-1", "web-1.shop.example"),
        ("web-0.shop.example", "web-0.bank.example"),
        ("web-0", "-web-0"),
        ("web-0", "__web-0"),
        ("web-0", ""),
        ("", ""),
        ("", "_"),
        ("vmss_1", "vmss_10"),
        ("vmss_10", "vmss_1"),
        ("vmss_10", "vmss000010"),
        ("vmss_10", "vmss000001"),
        ("vmss000001", "vmss_10"),
        ("vmss_01", "vmss000001"),
        ("vmss_18", "vmss0000i"),
        ("vmss_18", "vmss000000i"),
        ("vmss_18", "other00000i"),
        ("vmss_99999999999", "vmss000000"),
        ("00000i", "_18"),
    ],
)
def test_event_does_not_affect_a_machine_of_a_similar_name(me: str, resource: str) -> None:
    assert not event_for(resource).affects(me)


def test_event_without_resources_affects_nobody() -> None:
    assert not event_for().affects("web-0")


@pytest.mark.parametrize("resource", ["batch_18", "batch00000i", "BATCH00000I", "_batch_18"])
def test_identity_is_met_by_its_name_and_by_its_host_name(resource: str) -> None:
    by_name = Identity(name="batch_18")
    by_host = Identity(name="unlike", host_name="batch00000i.example")

    assert event_for(resource).affects(by_name)
    assert event_for(resource).affects(by_host)


def test_dots_in_the_name_given_by_the_server_are_no_domain() -> None:
    me = Identity(name="web.prod", host_name="node")

    assert not event_for("web").affects(me)
    assert event_for("web.prod").affects(me)


def test_names_are_all_that_mean_the_machine() -> None:
    me = Identity(name="Batch_18", host_name="batch00000i.example")

    assert me.names == {"batch_18", "batch00000i", "batch00000i.example"}


def test_what_is_not_known_of_a_machine_is_none() -> None:
    me = Identity(name="web-0")

    assert (me.vm_id, me.update_domain, me.fault_domain) == (None, None, None)
    assert me.names == {"web-0"}
