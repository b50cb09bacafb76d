"""`/metadata/instance`, `/metadata/versions`, and the categories that Azure has and we do not."""

import pytest
from tests.http.metadata.conftest import Service

from forewarn.protocol.errors import ERROR_ANSWERS, Refusal

LEAVES = {
    "compute/name": "web-0",
    "compute/vmId": "5E0D4C7A-0000-4000-8000-000000000001",
    "compute/location": "cellar",
    "compute/resourceGroupName": "shop",
    "compute/subscriptionId": "s-1",
    "compute/tags": "tier:web;owner:ann",
    "compute/tagsList/1/value": "ann",
    "compute/platformUpdateDomain": "1",
    "compute/platformFaultDomain": "1",
    "compute/zone": "2",
    "compute/vmScaleSetName": "",
    "COMPUTE/NAME": "web-0",
    "compute/vmSize": "Standard_D2s_v5",
    "compute/osType": "Linux",
    "compute/publisher": "Debian",
    "compute/offer": "debian-12",
    "compute/sku": "12-gen2",
    "compute/version": "0.20260101.1",
    "compute/azEnvironment": "AzurePublicCloud",
    "compute/userData": "aGVsbG8=",
    "compute/osProfile/computerName": "web-zero",
    "compute/resourceId": (
        "/subscriptions/s-1/resourceGroups/shop/providers/Microsoft.Compute/virtualMachines/web-0"
    ),
    "network/interface/0/macAddress": "000D3A123456",
    "network/interface/0/ipv4/subnet/0/address": "10.1.1.0",
    "network/interface/0/ipv4/subnet/0/prefix": "24",
    "network/interface/0/ipv4/ipAddress/0/privateIpAddress": "127.0.0.10",
    "network/interface/0/ipv4/ipAddress/1/privateIpAddress": "10.1.1.1",
    "network/interface/0/ipv6/ipAddress/0/privateIpAddress": "FD00:0::A",
}


@pytest.mark.parametrize("leaf", LEAVES)
def test_leaf_is_bare_text(quiet_service: Service, leaf: str) -> None:
    target = f"/metadata/instance/{leaf}?api-version=2019-06-01&format=text"

    reply = quiet_service.request(target)

    assert (reply.status, reply.body.decode()) == (200, LEAVES[leaf])
    assert reply.headers["content-type"] == "text/plain; charset=utf-8"


@pytest.mark.parametrize("version", ["2017-08-01", "2019-08-01", "2021-12-13", "2099-01-01"])
def test_whole_instance_is_json_for_any_dated_version(quiet_service: Service, version: str) -> None:
    reply = quiet_service.request(f"/metadata/instance?api-version={version}")

    assert reply.headers["content-type"] == "application/json; charset=utf-8"
    assert reply.json["compute"]["name"] == "web-0"
    assert reply.json["compute"]["tagsList"][0] == {"name": "tier", "value": "web"}


def test_every_scalar_is_a_string(quiet_service: Service) -> None:
    def scalars(node: object) -> list[object]:
        if isinstance(node, dict):
            node = list(node.values())
        if isinstance(node, list):
            return [scalar for child in node for scalar in scalars(child)]
        return [node]

    content = quiet_service.request("/metadata/instance?api-version=2021-02-01").json

    assert {type(scalar) for scalar in scalars(content)} == {str}


def test_subtree_is_json_and_its_names_are_text(quiet_service: Service) -> None:
    subtree = quiet_service.request("/metadata/instance/network/?api-version=2021-02-01")
    names = quiet_service.request("/metadata/instance?api-version=2021-02-01&format=text")

    assert list(subtree.json) == ["interface"]
    assert names.body == b"compute/\nnetwork/"


def test_machine_of_a_scale_set_knows_it(quiet_service: Service) -> None:
    target = "/metadata/instance/compute?api-version=2021-02-01"

    compute = quiet_service.request(target, source="127.0.0.12").json

    assert (compute["vmScaleSetName"], compute["placementGroupId"]) == ("batch", "pg-1")
    assert compute["resourceId"].endswith(
        "/providers/Microsoft.Compute/virtualMachineScaleSets/batch/virtualMachines/0"
    )


def test_what_is_not_known_is_empty_or_left_out(quiet_service: Service) -> None:
    target = "/metadata/instance?api-version=2021-02-01"

    content = quiet_service.request(target, source="127.0.0.11").json

    assert (content["compute"]["vmSize"], content["compute"]["userData"]) == ("", "")
    assert "osProfile" not in content["compute"]
    assert content["network"]["interface"] == [
        {
            "ipv4": {"ipAddress": [{"privateIpAddress": "127.0.0.11", "publicIpAddress": ""}]},
            "ipv6": {"ipAddress": []},
        }
    ]


@pytest.mark.parametrize(
    ("target", "status"),
    [
        ("/metadata/instance", 400),
        ("/metadata/instance?api-version=latest", 400),
        ("/metadata/instance?api-version=1", 400),
        ("/metadata/instance?api-version=2021-02-01&format=xml", 400),
        ("/metadata/instance/compute/name?api-version=2021-02-01", 400),
        ("/metadata/instance/compute/shoeSize?api-version=2021-02-01&format=text", 404),
        ("/metadata/instance/compute/name/x?api-version=2021-02-01&format=text", 404),
        ("/metadata/instancex?api-version=2021-02-01", 404),
    ],
)
def test_what_is_not_there_is_refused(quiet_service: Service, target: str, status: int) -> None:
    reply = quiet_service.request(target)

    assert (reply.status, "error" in reply.json) == (status, True)


@pytest.mark.parametrize(
    ("target", "refusal"),
    [
        ("/metadata", Refusal.API_VERSION_MISSING),
        ("/metadata/", Refusal.API_VERSION_MISSING),
        ("/metadata?api-version=2021-02-01", Refusal.NOT_FOUND),
        (
            "/metadata/identity/oauth2/token?api-version=2018-02-01&resource=https://vault.azure.net",
            Refusal.IDENTITY_UNKNOWN,
        ),
        ("/metadata/attested/document?api-version=2021-02-01", Refusal.NOT_ATTESTED),
    ],
)
def test_other_categories_answer_as_clients_expect(
    quiet_service: Service, target: str, refusal: Refusal
) -> None:
    reply = quiet_service.request(target)
    without_header = quiet_service.request(target, metadata=None)

    answer = ERROR_ANSWERS[refusal]
    assert (reply.status, reply.body) == (answer.status, answer.body)
    assert without_header.body == ERROR_ANSWERS[Refusal.METADATA_HEADER_MISSING].body


def test_nobody_has_an_identity_and_is_told_at_once(
    service: Service, capsys: pytest.CaptureFixture[str]
) -> None:
    # A 404 makes Azure's SDKs try again for 20 seconds, wherever they run.
    reply = service.request("/metadata/identity/oauth2/token", source="127.0.0.98")

    assert reply.body == ERROR_ANSWERS[Refusal.IDENTITY_UNKNOWN].body
    assert capsys.readouterr().out.count("127.0.0.98") == 1


@pytest.mark.parametrize(
    "target", ["/metadata/instance?api-version=2021-02-01", "/metadata/versions"]
)
def test_reading_about_oneself_follows_the_same_rules(quiet_service: Service, target: str) -> None:
    refused = quiet_service.request(target, metadata=None)
    posted = quiet_service.request(target, method="POST")

    assert refused.body == ERROR_ANSWERS[Refusal.METADATA_HEADER_MISSING].body
    assert (posted.status, posted.headers["allow"]) == (405, "GET, HEAD")
    assert quiet_service.request(target, source="127.0.0.99").status == 404
    assert quiet_service.request(target, method="HEAD").status == 200
    assert quiet_service.polls == []


def test_versions_are_listed(quiet_service: Service) -> None:
    versions = quiet_service.request("/metadata/versions").json["apiVersions"]

    assert (versions[0], versions[-1]) == ("2017-03-01", "2020-07-01")
