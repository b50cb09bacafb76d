import tomllib
from datetime import timedelta

import pytest

from forewarn.domain.policy import ApprovalPolicy
from forewarn.domain.topology import ScopeKind
from forewarn.files.fleet import (
    FleetError,
    FleetMistakesError,
    examine_fleet,
    read_fleet,
    read_fleet_file,
    standalone_vms,
    write_fleet_file,
)
from forewarn.wording.durations import DurationError, format_duration, parse_duration


@pytest.mark.parametrize(
    ("text", "duration"),
    [
        ("30s", timedelta(seconds=30)),
        ("15m", timedelta(minutes=15)),
        ("1h30m", timedelta(minutes=90)),
        ("2d", timedelta(days=2)),
        ("0m", timedelta(0)),
        ("90", timedelta(seconds=90)),
    ],
)
def test_duration_is_read_as_people_type_it(text: str, duration: timedelta) -> None:
    assert parse_duration(text) == duration


@pytest.mark.parametrize("text", ["", "m", "1m30", "-5m", "1.5h", "5 m", "٣m", "9" * 10 + "d"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(DurationError, match="Invalid duration"):
        parse_duration(text)


def test_duration_too_long_to_count_is_refused() -> None:
    with pytest.raises(DurationError):
        parse_duration("999999999d999999999d")


@pytest.mark.parametrize("text", ["0s", "30s", "15m", "1h30m", "2d5s"])
def test_duration_is_written_as_it_is_read(text: str) -> None:
    assert format_duration(parse_duration(text)) == text


def test_fleet_file_is_read_with_its_defaults() -> None:
    fleet = read_fleet_file(
        '[[cloud_service]]\nname = "shop"\napproval = "all"\n'
        '[[virtual_machine]]\nname = "FrontEnd_IN_0"\ncloud_service = "shop"\nrole = "FrontEnd"\n'
        '[[virtual_machine]]\nname = "solo"\nauto_approve_user = true\n'
        '[[host]]\nname = "kvm-1"\nlabels = { rack = "a" }\n'
    )

    (shop,), (front, solo), (host,) = fleet.scopes, fleet.virtual_machines, fleet.hosts
    assert (shop.update_domains, shop.fault_domains) == (5, 2)
    assert shop.policy.approval is ApprovalPolicy.ALL
    assert front.vm.scope_id == "cloud-service/shop"
    assert (solo.scope.kind, solo.vm.scope_id) == (
        ScopeKind.VIRTUAL_MACHINE,
        "virtual-machine/solo",
    )
    assert solo.scope.policy.auto_approve_user
    assert host.labels == {"rack": "a"}


VM = '[[virtual_machine]]\nname = "a"\n'


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("= 1", "Not valid TOML"),
        (
            "[[server]]\nname = 'a'",
            "^server: unknown key; known keys: availability_set, cloud_service, scale_set, ",
        ),
        ("[virtual_machine]\nname = 'a'", r"write \[\[virtual_machine\]\]"),
        ("[[virtual_machine]]\nhost = 'a'", "^name of virtual_machine 1: it is required.$"),
        ("[[virtual_machine]]\nname = 7", "^name of virtual_machine 1: 7 is not text in quotes.$"),
        (VM + "colour = 1", "^colour of a: unknown key.$"),
        (VM + "host = 1", "^host of a: 1 is not text in quotes.$"),
        (VM + "update_domain = true", "^update_domain of a: true is not a whole number.$"),
        (VM + "addresses = [1]", "^item 1 of addresses of a: 1 is not text in quotes.$"),
        (VM + "addresses = '::1'", "^addresses of a: it is not a list.$"),
        (VM + "tags = { x = 1 }", "^x of tags of a: 1 is not text in quotes.$"),
        (VM + "labels = 1", "^labels of a: it is not a table of keys and values.$"),
        (
            VM + "profile = { size = 'D2' }",
            "^profile of a: unknown key 'size'; known keys: vm_size, ",
        ),
        (
            VM + "profile = { size = 'D2', vm_sku = 'D2' }",
            "^profile of a: unknown key 'size', unknown key 'vm_sku'; known keys: vm_size, ",
        ),
        (
            VM + "profile = { size = 'D2', subnet = '10.0.0.1/24' }",
            "subnet '10.0.0.1/24' is not a valid network.*, and unknown key 'size'; known keys: ",
        ),
        (VM + "profile = { vm_size = 2 }", "^vm_size of profile of a: 2 is not text in quotes.$"),
        (
            VM + "profile = { mac_address = '00:0d' }",
            "mac_address '00:0d' is not a valid MAC address",
        ),
        (
            VM + "profile = { subnet = '10.0.0.1/24' }",
            "subnet '10.0.0.1/24' is not a valid network",
        ),
        (
            VM + "approval = 'some'",
            "^approval of a: 'some' is not one of 'any', 'all' or 'leader'.$",
        ),
        (VM + "postpone_until = 'soon'", "postpone_until of a: invalid duration 'soon'"),
        (VM + "notice = 90", "^notice of a: 90 is not text in quotes.$"),
        (VM + "scale_set = 's'\ncloud_service = 'c'", "only be in one of"),
        (VM + "placement_group = 'p'\navailability_set = 's'", "is not in a scale set"),
        (VM + "role = 'Front'\ncloud_service = 'c'", "must be named Front_IN_NUMBER"),
        (VM + "placement_group = 'p'", "is not in a scale set"),
        (
            VM + "approval = 'all'\navailability_set = 's'",
            "^approval of a: it belongs to s, not to a ",
        ),
    ],
)
def test_declaration_that_cannot_be_read_is_refused(text: str, words: str) -> None:
    with pytest.raises(FleetError, match=words):
        read_fleet_file(text)


def test_entry_that_is_no_table_is_refused() -> None:
    with pytest.raises(FleetError, match=r"^host 1: it is not a table"):
        read_fleet({"host": ["kvm-1"]})


def test_key_called_kind_hides_no_other_key() -> None:
    fleet = examine_fleet({"virtual_machine": [{"name": "x", "kind": "zone", "zone": 1}]})

    assert [str(each) for each in fleet.mistakes] == [
        "zone of x: 1 is not text in quotes.",
        "kind of x: unknown key.",
    ]
    assert [declared.vm.name for declared in fleet.virtual_machines] == ["x"]


def test_long_value_is_not_repeated() -> None:
    with pytest.raises(FleetError, match=r"^host of a: it is not text in quotes.$"):
        read_fleet({"virtual_machine": [{"name": "a", "host": [1] * 1000}]})


def test_every_mistake_of_a_file_is_told() -> None:
    text = (
        "[[server]]\nname = 'a'\n[[availability_set]]\napproval = 'any'\n"
        "[[virtual_machine]]\nname = 'b'\ncolour = 1\nhost = 2\nnotice = 'soon'\nscale_set = 's'\n"
        "availability_set = 't'\nplacement_group = 'g'\ntags = { x = 1 }\naddresses = [1]\n"
    )

    with pytest.raises(FleetMistakesError) as refused:
        read_fleet_file(text)

    found = [
        (each.table, each.index, each.key)
        for each in refused.value.mistakes
        if isinstance(each, FleetError)
    ]
    assert found == [
        ("server", None, None),
        ("availability_set", 0, "name"),
        ("virtual_machine", 0, "notice"),
        ("virtual_machine", 0, "host"),
        ("virtual_machine", 0, "addresses"),
        ("virtual_machine", 0, "tags"),
        ("virtual_machine", 0, "colour"),
        ("virtual_machine", 0, "scale_set"),
    ]
    assert "The fleet has 8 mistakes." in str(refused.value)


def test_what_is_right_of_an_entry_is_read_beside_its_mistakes() -> None:
    wrong = {"name": "web", "update_domains": 3, "colour": "red", "notice": "soon", "approval": "x"}

    fleet = examine_fleet({"availability_set": [wrong, {"name": "other"}]})

    assert [(scope.name, scope.update_domains) for scope in fleet.scopes] == [
        ("web", 3),
        ("other", 5),
    ]
    assert len(fleet.mistakes) == 3


def test_more_than_a_hundred_mistakes_are_cut_short() -> None:
    with pytest.raises(FleetMistakesError, match="more than 100 mistakes") as refused:
        read_fleet({"host": [{}] * 1000})

    assert len(refused.value.mistakes) == 100


def test_byte_order_mark_is_accepted() -> None:
    assert len(read_fleet_file("\ufeff" + VM).virtual_machines) == 1


def test_fleet_file_is_written_as_it_is_read() -> None:
    content = {
        "availability_set": [{"name": "web", "update_domains": 3, "auto_approve_user": True}],
        "virtual_machine": [
            {"name": "a", "addresses": ["10.0.0.1", "::1"], "tags": {"say": 'a "\x7f\n" ü'}},
            {"name": "b", "tags": {}},
        ],
    }

    assert tomllib.loads(write_fleet_file(content)) == content
    assert write_fleet_file({}) == ""


def test_machines_can_be_declared_by_their_names_alone() -> None:
    fleet = read_fleet_file(write_fleet_file(standalone_vms("web-0", "web-1")))

    assert [declared.vm.name for declared in fleet.virtual_machines] == ["web-0", "web-1"]
