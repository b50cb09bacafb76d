"""The sources that the fleet follows, over the control API."""

from datetime import UTC, datetime

import httpx2
from fastapi import FastAPI

from forewarn.operations.discovery import SourceStatus, put_sources

SINCE = datetime(2026, 1, 5, 8, tzinfo=UTC)
AWAY = SourceStatus(
    name="kvm", kind="libvirt", problem="kvm-1 is away.", since=SINCE, machines=3, remarks=("one",)
)


def test_without_sources_the_list_is_empty(api: httpx2.Client) -> None:
    assert api.get("discovery").json() == {"sources": []}


def test_sources_are_listed_with_their_problems(app: FastAPI, api: httpx2.Client) -> None:
    app.state.services.store.write(lambda tx: put_sources(tx, [AWAY]))

    assert api.get("discovery").json() == {
        "sources": [
            {
                "name": "kvm",
                "kind": "libvirt",
                "problem": "kvm-1 is away.",
                "since": "2026-01-05T08:00:00Z",
                "machines": 3,
                "missing": 0,
                "remarks": ["one"],
            }
        ]
    }


def test_caller_that_is_limited_to_scopes_sees_no_source(app: FastAPI, api: httpx2.Client) -> None:
    app.state.services.store.write(lambda tx: put_sources(tx, [AWAY]))
    limits = {"name": "bob", "role": "viewer", "scopes": ["web"]}
    secret = api.post("tokens", json=limits).json()["secret"]

    answer = api.get("discovery", headers={"Authorization": f"Bearer {secret}"})

    assert answer.json() == {"sources": []}
