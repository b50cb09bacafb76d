"""/faults and the faults of one virtual machine."""

from typing import Any

import httpx2
import pytest

from forewarn.domain.fault import FAULTS

NOTHING: dict[str, Any] = dict.fromkeys(("times", "seconds", "status", "retry_after", "event_type"))


def view(kind: str, vm: str = "web-0", **parameters: Any) -> dict[str, Any]:
    return {"vm": vm, "kind": kind, **NOTHING, **parameters}


def listed(api: httpx2.Client) -> list[dict[str, Any]]:
    faults: list[dict[str, Any]] = api.get("faults").json()["faults"]
    return faults


def test_there_are_no_faults_at_first(api: httpx2.Client) -> None:
    assert listed(api) == []


def test_fault_is_set_shown_and_replaced(api: httpx2.Client) -> None:
    first = api.put("virtual-machines/WEB-0/faults/slow", json={"seconds": 2, "times": 1})
    api.put("virtual-machines/web-0/faults/reset")
    api.put("virtual-machines/solo/faults/unknown-type", json={"event_type": "Nap"})
    again = api.put("virtual-machines/web-0/faults/slow", json={"seconds": 0.5, "times": None})

    assert (first.status_code, first.json()) == (200, view("slow", seconds=2, times=1))
    assert again.json() == view("slow", seconds=0.5)
    assert listed(api) == [
        view("slow", seconds=0.5),
        view("reset"),
        view("unknown-type", "solo", event_type="Nap"),
    ]


def test_every_fault_can_be_set(api: httpx2.Client) -> None:
    needed: dict[str, Any] = {"seconds": 2, "status": 503}

    for kind, traits in FAULTS.items():
        given = {name: needed[name] for name in traits.needed}
        answer = api.put(f"virtual-machines/web-0/faults/{kind}", json=given)
        assert (answer.status_code, answer.json()) == (200, view(kind, **given))

    assert [fault["kind"] for fault in listed(api)] == list(FAULTS)


def test_one_fault_is_cleared_or_all(api: httpx2.Client) -> None:
    for kind in ("reset", "empty-body", "incarnation-reset"):
        api.put(f"virtual-machines/web-0/faults/{kind}")
    api.put("virtual-machines/solo/faults/reset")

    one = api.delete("virtual-machines/web-0/faults/reset")
    none = api.delete("virtual-machines/web-0/faults/reset")
    rest = api.delete("virtual-machines/web-0/faults")

    assert one.json() == {"faults": [view("empty-body"), view("incarnation-reset")]}
    assert (none.status_code, none.json()) == (200, one.json())
    assert rest.json() == {"faults": []}
    assert listed(api) == [view("reset", "solo")]


@pytest.mark.parametrize(
    ("kind", "body", "problem", "detail"),
    [
        ("slow", {}, "fault", "A fault of kind slow needs seconds."),
        ("reset", {"status": 500}, "fault", "A fault of kind reset does not take status."),
        (
            "publish-delay",
            {"seconds": 1, "times": 1},
            "fault",
            "publish-delay does not take times.",
        ),
        ("status", {"status": 200}, "fault", "status must be an HTTP error such as 404"),
        ("slow", {"seconds": -1}, "fault", "seconds must be more than 0"),
        ("slow", {"seconds": "2"}, "invalid-request", "seconds"),
        ("reset", {"times": True}, "invalid-request", "times"),
        ("reset", {"when": 1}, "invalid-request", "when: unknown key."),
        ("grumpy", {}, "invalid-request", "kind: 'grumpy' is not one of 'slow', 'reset'"),
    ],
)
def test_fault_that_cannot_be_is_refused(
    api: httpx2.Client, kind: str, body: dict[str, Any], problem: str, detail: str
) -> None:
    answer = api.put(f"virtual-machines/web-0/faults/{kind}", json=body)

    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["type"] == f"urn:forewarn:problem:{problem}"
    assert detail in answer.json()["detail"]
    assert listed(api) == []


@pytest.mark.parametrize(
    ("method", "path"), [("PUT", "faults/reset"), ("DELETE", "faults/reset"), ("DELETE", "faults")]
)
def test_virtual_machine_that_is_none_has_no_faults(
    api: httpx2.Client, method: str, path: str
) -> None:
    answer = api.request(method, f"virtual-machines/nobody/{path}")

    assert (answer.status_code, answer.json()["type"]) == (
        404,
        "urn:forewarn:problem:unknown-virtual-machine",
    )


def test_faults_are_in_the_audit(api: httpx2.Client) -> None:
    api.put("virtual-machines/web-0/faults/slow", json={"seconds": 2})
    api.delete("virtual-machines/web-0/faults")

    entries = api.get("audit").json()["audit"][-2:]
    assert [(entry["action"], entry["subject"], entry["detail"]) for entry in entries] == [
        ("fault set", "web-0", "slow, seconds 2"),
        ("fault clear", "web-0", "all"),
    ]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "faults"),
        ("PUT", "virtual-machines/web-0/faults/reset"),
        ("DELETE", "virtual-machines/web-0/faults"),
    ],
)
def test_faults_need_a_token(api: httpx2.Client, method: str, path: str) -> None:
    assert api.request(method, path, headers={"Authorization": ""}).status_code == 401
