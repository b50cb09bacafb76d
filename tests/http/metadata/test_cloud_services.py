"""Two cloud services with a role of the same name, as the instances of each see them."""

import json
import urllib.request
from collections.abc import Iterator

import pytest

from forewarn.client import Client
from forewarn.testing import EmulatedVm, Emulator

FLEET = """
[[cloud_service]]
name = "shop"

[[cloud_service]]
name = "blog"

[[virtual_machine]]
name = "shop.FrontEnd_IN_0"
cloud_service = "shop"
role = "FrontEnd"
update_domain = 0

[[virtual_machine]]
name = "FrontEnd_IN_1"
cloud_service = "shop"
update_domain = 0

[[virtual_machine]]
name = "Blog.FrontEnd_IN_0"
cloud_service = "blog"
"""


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    with Emulator(fleet=FLEET) as running:
        yield running


WORDS = "Host server is undergoing maintenance."


def read(vm: EmulatedVm, path: str) -> bytes:
    request = urllib.request.Request(f"{vm.url}{path}", headers={"Metadata": "true"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        body: bytes = answer.read()
    return body


@pytest.mark.parametrize(
    ("version", "fields"),
    [
        ("2017-11-01", ""),
        ("2020-07-01", f',"Description":"{WORDS}","EventSource":"Platform","DurationInSeconds":-1'),
    ],
)
def test_each_service_reads_its_own_events_with_plain_names_of_instances(
    emulator: Emulator, version: str, fields: str
) -> None:
    (event,) = emulator.announce("Reboot", "shop.FrontEnd_IN_0", "FrontEnd_IN_1")
    not_before = f"{event.record.not_before:%a, %d %b %Y %H:%M:%S} GMT"
    poll = f"/metadata/scheduledevents?api-version={version}"

    own, foreign = (
        read(emulator.vm(name), poll) for name in ("FrontEnd_IN_1", "blog.FrontEnd_IN_0")
    )

    assert own.decode() == (
        f'{{"DocumentIncarnation":1,"Events":[{{"EventId":"{event.event_id}",'
        '"EventStatus":"Scheduled","EventType":"Reboot","ResourceType":"VirtualMachine",'
        f'"Resources":["FrontEnd_IN_0","FrontEnd_IN_1"],"NotBefore":"{not_before}"{fields}}}]}}'
    )
    assert foreign == b'{"DocumentIncarnation":0,"Events":[]}'


@pytest.mark.parametrize(
    ("name", "version"),
    [("shop.FrontEnd_IN_0", "2017-03-01"), ("Blog.FrontEnd_IN_0", "2017-03-01")],
)
def test_first_version_has_no_underscore_before_an_instance(
    emulator: Emulator, name: str, version: str
) -> None:
    emulator.announce("Freeze", name)

    document = emulator.vm(name).document(version)

    assert document["Events"][0]["Resources"] == ["FrontEnd_IN_0"]


@pytest.mark.parametrize("name", ["shop.FrontEnd_IN_0", "Blog.FrontEnd_IN_0"])
def test_instance_knows_itself_by_the_name_in_resources(emulator: Emulator, name: str) -> None:
    vm = emulator.vm(name)
    (event,) = emulator.announce("Reboot", name)

    with Client(vm.url) as client:
        me, (read_event,) = client.whoami(), client.events()
    instance = json.loads(read(vm, "/metadata/instance?api-version=2021-02-01"))
    told = json.loads(read(vm, f"/metadata/forewarn/v1/events/{event.event_id}"))

    assert (me.name, read_event.affects(me)) == ("FrontEnd_IN_0", True)
    assert instance["compute"]["name"] == "FrontEnd_IN_0"
    assert instance["compute"]["resourceId"].endswith(f"/virtualMachines/{name}")
    assert told["resources"] == ["FrontEnd_IN_0"]


def test_instance_approves_for_its_own_service_only(emulator: Emulator) -> None:
    (shop,), (blog,) = (
        emulator.announce("Reboot", name) for name in ("shop.FrontEnd_IN_0", "blog.FrontEnd_IN_0")
    )

    with Client(emulator.vm("shop.FrontEnd_IN_0").url) as client:
        client.approve(*client.events())

    shop.assert_approved(by="shop.FrontEnd_IN_0")
    blog.assert_not_approved(even_if_silent=True)
