"""Fleets that look like those of people, and what happens in them."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import cycle
from typing import Any, Final

from playwright.sync_api import expect
from tests.browser.windows import Window

_RACKS: Final = ("a1", "a1", "a2", "a2", "b1", "b1", "b2", "b2")


@contextmanager
def refused(window: Window) -> Iterator[None]:
    """Expect that the server refuses something, of which the browser tells its console."""
    with window.page.expect_console_message(lambda message: message.type == "error"):
        yield
    window.errors.clear()


def assert_not_found(window: Window, path: str) -> None:
    """Fail unless there is no page at *path*."""
    with refused(window):
        window.page.goto(path)
    expect(window.page.get_by_role("heading", name="Not found")).to_be_visible()


def _machine(name: str, host: int, **others: object) -> dict[str, Any]:
    return {"name": name, "host": f"kvm-{host % len(_RACKS):02}", **others}


def data_centre() -> Mapping[str, Any]:
    """Return the fleet of a small data centre. No host carries two update domains of a scope."""
    web = [
        _machine(f"web-{i:02}", i % 5, availability_set="web", addresses=[f"10.20.0.{10 + i}"])
        for i in range(16)
    ]
    shop = [
        _machine(name, 4 + i % 4, cloud_service="shop")
        for i, name in enumerate(
            [f"FrontEnd_IN_{i}" for i in range(6)] + [f"Billing_IN_{i}" for i in range(4)]
        )
    ]
    workers = [
        _machine(f"worker-{i:03}", i // 2 % 5 + i % 2 * 3, scale_set="batch", placement_group=group)
        for i, group in zip(range(80), cycle(["pg1", "pg2"]), strict=False)
    ]
    alone = [
        _machine(name, i, labels={"tier": "data"})
        for i, name in enumerate(("db-primary", "db-replica", "vault", "ntp", "mail", "bastion"))
    ]
    return {
        "availability_set": [{"name": "web"}, {"name": "spare-set"}],
        "cloud_service": [{"name": "shop", "update_domains": 4, "approval": "all"}],
        "scale_set": [{"name": "batch"}],
        "host": [
            {"name": f"kvm-{i:02}", "labels": {"rack": rack, "generation": "7"}}
            for i, rack in enumerate(_RACKS)
        ],
        "virtual_machine": [*web, *shop, *workers, *alone],
    }


def large_fleet(machines: int, scopes: int) -> Mapping[str, Any]:
    """Return a fleet of many virtual machines."""
    return {
        "availability_set": [{"name": f"set-{i:03}"} for i in range(scopes)],
        "virtual_machine": [
            {
                "name": f"vm-{i:05}",
                "availability_set": f"set-{i % scopes:03}",
                "host": f"host-{i // 25:03}",
            }
            for i in range(machines)
        ],
    }
