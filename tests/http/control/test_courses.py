"""PATCH /maintenances/{id}: how it goes on, changed while it is under way."""

import httpx2
import pytest

ORDER = {
    "event_type": "Freeze",
    "scopes": ["web"],
    "windows": ["daily 22:00-06:00 UTC"],
    "blackouts": ["2026-12-24 UTC Eve"],
    "soak_in_seconds": 60,
}


@pytest.fixture
def path(api: httpx2.Client) -> str:
    begun = api.post("maintenances", json=ORDER).json()
    return f"maintenances/{begun['maintenance_id']}"


def test_only_the_given_fields_change(api: httpx2.Client, path: str) -> None:
    before = api.get(path).json()

    answer = api.patch(path.upper().replace("MAINTENANCES", "maintenances"), json={"at_once": 4})

    assert answer.status_code == 200
    assert answer.json() == {**before, "at_once": 4} == api.get(path).json()


def test_null_or_nothing_takes_a_limit_away(api: httpx2.Client, path: str) -> None:
    patch: dict[str, object] = {
        "windows": [],
        "soak_in_seconds": None,
        "hold_all": False,
        "in_order": True,
    }

    changed = api.patch(path, json=patch).json()

    assert (changed["windows"], changed["soak_in_seconds"]) == ([], 0)
    assert (changed["hold_all"], changed["in_order"]) == (False, True)
    assert changed["blackouts"] == ORDER["blackouts"]


@pytest.mark.parametrize(
    ("patch", "status", "kind"),
    [
        ({"at_once": 0}, 422, "invalid-request"),
        ({"scopes": ["solo"]}, 422, "invalid-request"),
        ({"min_available": 75}, 422, "capacity"),
        ({"windows": ["Sat 22:00-22:10 UTC"]}, 422, "window-too-short"),
        ({"blackouts": ["yesterday"]}, 422, "blackout"),
        ({"gates": ["smoke"]}, 404, "gate-not-found"),
    ],
)
def test_change_that_cannot_be_is_refused(
    api: httpx2.Client, path: str, patch: dict[str, object], status: int, kind: str
) -> None:
    before = api.get(path).json()

    answer = api.patch(path, json=patch)

    assert (answer.status_code, answer.json()["type"]) == (status, f"urn:forewarn:problem:{kind}")
    assert api.get(path).json() == before


def test_change_is_audited_with_what_it_was(api: httpx2.Client, path: str) -> None:
    api.patch(path, json={"at_once": 4})

    last = api.get("audit").json()["audit"][-1]
    assert (last["action"], last["detail"]) == ("maintenance set", "at once: any number → 4")


def test_maintenance_that_is_over_is_not_changed(api: httpx2.Client, path: str) -> None:
    api.post(f"{path}/abort")

    assert api.patch(path, json={"at_once": 4}).status_code == 409


def test_change_is_refused_when_the_maintenance_has_changed(api: httpx2.Client, path: str) -> None:
    tag = api.get(path).headers["etag"]
    api.patch(path, json={"at_once": 4})

    assert api.patch(path, json={"at_once": 9}, headers={"If-Match": tag}).status_code == 412
    assert api.get(path).json()["at_once"] == 4


def test_change_is_done_once_with_a_key_and_never_in_a_dry_run(
    api: httpx2.Client, path: str
) -> None:
    rehearsed = api.patch(path, json={"at_once": 4}, params={"dry_run": True})
    assert (rehearsed.json()["at_once"], api.get(path).json()["at_once"]) == (4, None)

    key = {"Idempotency-Key": "k1"}
    answers = [api.patch(path, json={"at_once": 3}, headers=key).json() for _ in range(2)]

    assert answers[0] == answers[1]
    actions = [entry["action"] for entry in api.get("audit").json()["audit"]]
    assert actions.count("maintenance set") == 1
