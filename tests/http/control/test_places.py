"""/availability-sets, /cloud-services and /scale-sets."""

import httpx2
import pytest

FLEET = {
    "scale_set": [{"name": "batch", "terminate_notice": "7m"}],
    "cloud_service": [{"name": "shop", "approval": "all"}],
    "virtual_machine": [
        {"name": "batch-0", "scale_set": "batch", "placement_group": "pg1", "host": "kvm-0"},
        {"name": "batch-1", "scale_set": "batch", "placement_group": "pg2"},
    ],
}


@pytest.fixture
def places(api: httpx2.Client) -> httpx2.Client:
    assert api.post("fleet", json={"fleet": FLEET}).status_code == 200
    return api


def test_set_has_its_settings_and_members(places: httpx2.Client) -> None:
    (web,) = places.get("availability-sets").json()["sets"]
    batch = places.get("scale-sets/BATCH").json()

    assert (web["name"], web["update_domains"], web["postpone_until_seconds"]) == ("web", 3, 3600)
    assert web["virtual_machines"] == ["web-0", "web-1"]
    assert web == places.get("availability-sets/web").json()
    assert batch["terminate_notice_seconds"] == 420
    assert batch["placement_groups"] == ["pg1", "pg2"]
    assert batch["virtual_machines"] == ["batch-0", "batch-1"]
    assert places.get("scale-sets").json()["sets"] == [batch]


def test_set_without_members_is_shown_too(places: httpx2.Client) -> None:
    shop = places.get("cloud-services/shop").json()

    assert (shop["approval"], shop["virtual_machines"]) == ("all", [])
    assert places.get("cloud-services").json()["sets"] == [shop]


@pytest.mark.parametrize("path", ["availability-sets/batch", "scale-sets/web"])
def test_what_is_not_there_is_not_found(places: httpx2.Client, path: str) -> None:
    assert places.get(path).status_code == 404
