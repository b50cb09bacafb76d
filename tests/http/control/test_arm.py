"""The route of Azure Resource Manager."""

import httpx2
import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

TOKEN = "open-sesame"  # noqa: S105
EVENT = "00000000-0000-4000-8000-000000000004"
PATH = (
    "/subscriptions/5a/resourcegroups/shop/providers/Microsoft.Compute/{resource}"
    "/providers/Microsoft.Maintenance/scheduledevents/{event}/acknowledge"
)


@pytest.fixture
def arm(api: httpx2.Client, app: FastAPI) -> httpx2.Client:
    """A client of a server on which web-0 is to be rebooted."""
    order = {"event_type": "Reboot", "resources": ["web-0"]}
    (event,) = api.post("events", json=order).json()["events"]
    assert event["event_id"] == EVENT
    client = TestClient(app, base_url="http://control", raise_server_exceptions=False)
    client.headers["Authorization"] = f"Bearer {TOKEN}"
    return client


def acknowledge(
    client: httpx2.Client,
    resource: str = "virtualMachines/web-0",
    event: str = EVENT,
    version: str | None = "2023-10-01-preview",
) -> httpx2.Response:
    query = {} if version is None else {"api-version": version}
    return client.post(PATH.format(resource=resource, event=event), params=query)


@pytest.mark.parametrize(
    ("resource", "approver"),
    [("virtualMachines/web-0", "virtual machine"), ("availabilitySets/web", "operator")],
)
def test_event_is_approved(
    arm: httpx2.Client, api: httpx2.Client, wakeups: list[str], resource: str, approver: str
) -> None:
    wakeups.clear()

    answer = acknowledge(arm, resource)

    assert (answer.status_code, answer.json()) == (
        200,
        {"value": "Successfully approved scheduled event"},
    )
    (approval,) = api.get(f"events/{EVENT}").json()["approvals"]
    assert approval["approver"] == approver
    assert wakeups == ["changed"]


def test_words_of_the_path_are_matched_in_any_case(arm: httpx2.Client) -> None:
    path = PATH.format(resource="VIRTUALMACHINES/Web-0", event=EVENT.lower())

    assert arm.post(path.upper(), params={"api-version": "2025-04-01"}).status_code == 200
    assert arm.post(path.lower(), params={"api-version": "2025-04-01"}).status_code == 200


@pytest.mark.parametrize(
    ("asked", "status", "code"),
    [
        ({"version": None}, 400, "InvalidApiVersionParameter"),
        ({"version": "latest"}, 400, "InvalidApiVersionParameter"),
        ({"resource": "virtualMachines/ghost"}, 404, "ResourceNotFound"),
        ({"resource": "virtualMachineScaleSets/web"}, 404, "ResourceNotFound"),
        ({"resource": "disks/web-0"}, 404, "InvalidResourceType"),
        ({"resource": "virtualMachines/solo"}, 404, "NotFound"),
        ({"event": EVENT[:-1] + "F"}, 404, "NotFound"),
    ],
)
def test_refusal_has_the_envelope_of_arm(
    arm: httpx2.Client, asked: dict[str, str], status: int, code: str
) -> None:
    answer = acknowledge(arm, **asked)

    assert answer.status_code == status
    assert answer.json()["error"]["code"] == code
    assert answer.json()["error"]["message"].endswith(".")
    assert answer.headers["content-type"] == "application/json"


def test_token_is_needed_in_any_case_of_the_path(arm: httpx2.Client) -> None:
    del arm.headers["Authorization"]
    path = PATH.format(resource="virtualMachines/web-0", event=EVENT)
    for spelled in (path, path.upper()):
        answer = arm.post(spelled)

        assert answer.status_code == 401
        assert answer.json()["error"]["code"] == "AuthenticationFailed"
        assert "www-authenticate" in answer.headers


def test_other_paths_and_methods_are_refused_in_the_same_envelope(arm: httpx2.Client) -> None:
    assert arm.get("/subscriptions/5a").json()["error"]["code"] == "NotFound"
    path = PATH.format(resource="virtualMachines/web-0", event=EVENT)
    assert arm.get(path).json()["error"]["code"] == "MethodNotAllowed"
