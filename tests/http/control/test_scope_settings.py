"""/scopes: settings of a scope, one by one."""

import httpx2
import pytest


def test_one_setting_is_patched_and_the_others_stay(api: httpx2.Client) -> None:
    before = api.get("scopes/web").json()
    api.patch("scopes/web", json={"postpone_until": "1h"})

    changed = api.patch("scopes/WEB", json={"approval": "leader"})

    expected = {**before, "postpone_until": "1h", "approval": "leader"}
    assert (changed.status_code, changed.json()) == (200, expected)
    assert api.get("scopes/availability-set/web").json() == expected
    assert api.get("availability-sets/web").json()["approval"] == "leader"


def test_standalone_machine_is_a_scope(api: httpx2.Client) -> None:
    changed = api.patch("scopes/solo", json={"auto_approve_user": True}).json()

    assert changed == {
        "name": "solo",
        "scope_kind": "virtual-machine",
        "approval": "any",
        "postpone_until": "0s",
        "auto_approve_user": True,
        "terminate_notice": None,
        "notice": None,
        "virtual_machines": ["solo"],
    }


@pytest.mark.parametrize("name", ["web-0", "WEB-0"])
def test_machine_in_a_set_has_no_scope_of_its_own(api: httpx2.Client, name: str) -> None:
    shown = api.get(f"scopes/{name}")
    token = api.post("tokens", json={"name": "ann", "role": "viewer", "scopes": [name]})

    for answer in (shown, token):
        assert answer.status_code == 404
        detail = "web-0 belongs to the scope availability-set/web; use that name."
        assert answer.json()["detail"] == detail


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("scopes/web", {"approval": "nobody"}, 422),
        ("scopes/web", {"update_domains": 3}, 422),
        ("scopes/web-0", {"approval": "all"}, 404),
        ("scopes/nothing", {"approval": "all"}, 404),
    ],
)
def test_odd_patch_of_a_scope_is_refused(
    api: httpx2.Client, path: str, body: object, status: int
) -> None:
    before = api.get("fleet").content

    assert api.patch(path, json=body).status_code == status
    assert api.get("fleet").content == before


def test_patch_with_a_key_is_done_once(api: httpx2.Client) -> None:
    key = {"Idempotency-Key": "7"}
    first = api.patch("scopes/web", json={"approval": "all"}, headers=key)
    api.patch("scopes/web", json={"approval": "any"})

    again = api.patch("scopes/web", json={"approval": "all"}, headers=key)

    assert again.json() == first.json()
    assert api.get("scopes/web").json()["approval"] == "any"
