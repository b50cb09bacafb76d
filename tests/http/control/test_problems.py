"""Every refusal is a problem document, and the table of statuses is complete."""

import json
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import httpx2
import pytest
from fastapi import FastAPI
from structlog.testing import capture_logs

from forewarn.control.arm import ARM_PATH
from forewarn.control.authentication import LARGEST_BODY
from forewarn.control.problems import STATUSES, problem_of
from forewarn.domain import errors as domain_errors
from forewarn.domain.errors import DomainError
from forewarn.operations.context import Context
from forewarn.protocol.errors import ForewarnError


def subclasses(kind: type[Exception]) -> set[type[Exception]]:
    """Return *kind* and every class below it."""
    children: list[type[Exception]] = kind.__subclasses__()
    return {kind, *(below for child in children for below in subclasses(child))}


def test_every_error_of_the_domain_and_the_operations_has_a_status() -> None:
    kinds = subclasses(DomainError) - {DomainError}

    assert vars(domain_errors)["PlanError"] in kinds
    for kind in kinds:
        assert any(row in kind.__mro__ for row in STATUSES), f"{kind.__name__} has no status"


def test_error_without_a_row_is_a_failure_of_the_server() -> None:
    assert problem_of(ForewarnError("?")).status == 500


@pytest.mark.parametrize("path", ["events", "fleet"])
def test_what_is_no_json_is_wrong_in_the_body(api: httpx2.Client, path: str) -> None:
    problem = api.post(path, content=b"{", headers={"Content-Type": "application/json"}).json()

    assert [error["location"] for error in problem["errors"]] == ["body"]
    assert problem["detail"].startswith("body: JSON decode error")


@pytest.mark.parametrize(
    ("method", "path", "status", "kind"),
    [
        ("GET", "/nowhere", 404, "not-found"),
        ("GET", "/api/v1/nowhere", 404, "not-found"),
        ("GET", "/api/v1/events/", 404, "not-found"),
        ("DELETE", "/api/v1/fleet", 405, "method-not-allowed"),
        ("GET", "/api/v1/virtual-machines/%00%F0%9F%90%8D", 404, "unknown-virtual-machine"),
        ("GET", "/api/v1/events/%ff", 404, "unknown-event"),
    ],
)
def test_wrong_path_is_a_problem_document(
    api: httpx2.Client, method: str, path: str, status: int, kind: str
) -> None:
    answer = api.request(method, f"http://control{path}")

    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert (answer.status_code, problem["status"]) == (status, status)
    assert problem["type"] == f"urn:forewarn:problem:{kind}"
    assert set(problem) >= {"type", "title", "status", "detail", "instance"}


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("DELETE", "/api/v1/fleet", "GET, POST"),
        ("PATCH", "/api/v1/events", "GET, POST"),
        ("PUT", "/api/v1/virtual-machines/web-0", "DELETE, GET"),
        ("GET", "/api/v1/virtual-machines/web-0/faults/unreachable", "DELETE, PUT"),
        ("GET", "/api/v1/events/nope/cancel", "POST"),
        ("HEAD", "/api/v1/clock", "GET"),
        ("POST", "/healthz", "GET"),
        ("POST", "/metrics", "GET"),
        ("POST", "/api/openapi.json", "GET, HEAD"),
        ("GET", ARM_PATH.replace("/acknowledge", "/ACKNOWLEDGE"), "POST"),
    ],
)
def test_wrong_method_is_told_all_methods_of_the_path(
    api: httpx2.Client, method: str, path: str, allowed: str
) -> None:
    answer = api.request(method, f"http://control{path}")

    assert answer.status_code == 405
    assert set(allowed.split(", ")) <= set(answer.headers["allow"].split(", "))
    assert method not in answer.headers["allow"].split(", ")


@pytest.mark.parametrize(
    "body", [b"", b"{", b"null", b"[]", b'"x"', b"\xff\xfe", b'{"fleet": 1}', b"1e999", b"[" * 5000]
)
def test_body_that_is_no_request_is_refused(api: httpx2.Client, body: bytes) -> None:
    headers = {"Content-Type": "application/json"}

    answer = api.post("fleet", content=body, headers=headers)

    assert answer.status_code in {400, 422}
    assert answer.headers["content-type"] == "application/problem+json"


def test_body_that_is_too_large_is_refused(api: httpx2.Client) -> None:
    body = json.dumps({"fleet": {"x": "y" * LARGEST_BODY}})

    answer = api.post("fleet", content=body, headers={"Content-Type": "application/json"})

    assert (answer.status_code, answer.json()["type"]) == (
        413,
        "urn:forewarn:problem:body-too-large",
    )


@pytest.mark.parametrize("text", ["\ud800", "🐍" * 1000, "\x00", "'; DROP TABLE event; --"])
def test_odd_text_is_kept_or_refused_but_never_a_failure(api: httpx2.Client, text: str) -> None:
    order = {"event_type": "Reboot", "resources": ["solo"], "description": text}
    odd_vm = {"name": "odd", "location": text, "tags": {text: text}}
    headers = {"Content-Type": "application/json"}

    answers = [
        api.post("events", content=json.dumps(order), headers=headers),
        api.post(
            "fleet",
            content=json.dumps({"fleet": {"virtual_machine": [odd_vm]}}),
            headers=headers,
        ),
        api.post("events", json={**order, "resources": [ascii(text)], "description": ""}),
    ]

    assert all(answer.status_code in {200, 201, 404, 422} for answer in answers)
    if answers[0].status_code == 201:
        assert answers[0].json()["events"][0]["description"] == text


def test_ten_thousand_virtual_machines_are_one_request(empty_api: httpx2.Client) -> None:
    vms = [{"name": f"vm-{number}"} for number in range(10_000)]

    change = empty_api.post("fleet", json={"fleet": {"virtual_machine": vms}}).json()

    assert len(change["added"]) == 10_000
    listed = empty_api.get("virtual-machines?limit=10000").json()["virtual_machines"]
    assert len(listed) == 10_000


def test_full_disk_refuses_writes_and_serves_reads(api: httpx2.Client, tmp_path: Path) -> None:
    with full_disk(tmp_path / "forewarn.db-wal"):
        refused = api.post("virtual-machines/solo/restart")
        read = api.get("virtual-machines")
        health = [api.get(f"http://control/{path}") for path in ("readyz", "readyz/write")]

    assert refused.status_code == 503
    assert refused.json()["type"] == "urn:forewarn:problem:store-unavailable"
    assert read.status_code == 200
    assert [answer.status_code for answer in health] == [200, 503]
    assert api.post("virtual-machines/solo/restart").status_code == 201


def test_failure_of_the_server_says_nothing_of_its_inside(app: FastAPI, api: httpx2.Client) -> None:
    def fail(who: str) -> Context:
        raise RuntimeError(f"a secret of {who}")

    app.state.services = replace(app.state.services, context=fail)

    with capture_logs() as logs:
        answer = api.post("virtual-machines/solo/restart")

    assert (answer.status_code, answer.json()["type"]) == (500, "urn:forewarn:problem:internal")
    assert "secret" not in answer.text
    assert [line["event"] for line in logs] == ["control_request_failed"]


@contextmanager
def full_disk(path: Path) -> Iterator[None]:
    """Let no file of this process grow beyond *path* as it is."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_parameter_that_does_not_exist_is_refused(api: httpx2.Client) -> None:
    answer = api.get("events", params={"stauts": "Started"})

    assert answer.status_code == 422
    detail = answer.json()["detail"]
    assert detail.startswith("stauts: unknown parameter; known: ")
    assert "status" in detail
    assert api.get("clock", params={"status": "Started"}).json()["detail"].endswith("known: none.")


@pytest.mark.parametrize("since", ["0", "536870913", "yesterday", "2026-01-05T08:00:00"])
def test_number_is_no_time(api: httpx2.Client, since: str) -> None:
    assert api.get("audit", params={"since": since}).status_code == 422
    assert api.get("events/history", params={"since": since}).status_code == 422


def test_audit_since_a_while_ago_is_read(api: httpx2.Client) -> None:
    assert api.get("audit", params={"since": "10m ago"}).json()["audit"]
    assert api.get("audit", params={"since": "10m"}).json()["audit"]
