"""A day in the life of a small fleet, for pages about the past and what is to come."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

import httpx2

from forewarn.testing.emulator import Emulator

OTHER_SCOPE: Final = "payroll-of-the-board"
LONG: Final = "reporting-" + "warehouse-" * 9 + "end"
FLEET: Final[Mapping[str, Any]] = {
    "availability_set": [
        {"name": "web", "update_domains": 3, "postpone_until": "4h"},
        {"name": "search", "update_domains": 2},
        {"name": LONG, "update_domains": 2},
        {"name": OTHER_SCOPE, "update_domains": 2},
    ],
    "cloud_service": [{"name": "shop", "update_domains": 2, "approval": "all"}],
    "virtual_machine": [
        *(
            {"name": f"web-{number}", "availability_set": "web", "host": f"kvm-{number % 3 + 1}"}
            for number in range(6)
        ),
        *(
            {"name": f"search-{number}", "availability_set": "search", "host": f"kvm-{number + 4}"}
            for number in range(2)
        ),
        {"name": f"{LONG}-0", "availability_set": LONG, "host": "kvm-6"},
        {"name": "salaries-0", "availability_set": OTHER_SCOPE, "host": "kvm-7"},
        {"name": "FrontEnd_IN_0", "cloud_service": "shop", "host": "kvm-1"},
        {"name": "FrontEnd_IN_1", "cloud_service": "shop", "host": "kvm-2"},
        {"name": "db", "host": "kvm-3"},
        {"name": "bare"},
    ],
}


def post(emulator: Emulator, path: str, body: Mapping[str, Any] | None = None) -> Any:
    """Do as an operator would through the API, and return the answer."""
    answer = httpx2.post(
        f"{emulator.control_url}/api/v1/{path}",
        json=body,
        headers={"Authorization": f"Bearer {emulator.token}"},
    )
    assert answer.is_success, answer.text
    return answer.json()


def make_history(emulator: Emulator) -> None:
    """Let things happen, well and badly, and leave some under way and some to come."""
    clock = emulator.clock
    _let_a_day_pass(emulator)
    _begin_calendars(emulator)
    for number in range(4):
        event = emulator.vm(f"web-{number}").freeze(duration=9)
        clock.advance(minutes=3 * number + 1)
        event.approve()
        clock.advance(minutes=12)
    failed = emulator.vm("search-0").reboot(description="New firmware")
    emulator.vm(f"{LONG}-0").redeploy()
    clock.advance(minutes=17)
    failed.complete(failed="The machine did not come back")
    emulator.vm("salaries-0").reboot()
    canceled = emulator.vm("db").redeploy()
    emulator.vm("bare").redeploy(started=True)
    forced = emulator.vm("search-1").freeze()
    clock.advance(minutes=4)
    forced.start()
    clock.advance(minutes=3)
    canceled.cancel("No longer needed")
    postponed = emulator.vm("web-4").reboot()
    later = clock.now + timedelta(minutes=75)
    post(emulator, f"events/{postponed.event_id}/postpone", {"not_before": later.isoformat()})
    clock.advance(minutes=20)
    post(emulator, "maintenances", {"event_type": "Reboot", "scopes": ["shop"]})
    emulator.vm("search-0").freeze(notice=timedelta(minutes=50))
    clock.advance(minutes=10)
    emulator.vm("db").user_reboot()
    emulator.vm("web-5").reboot().start()
    clock.advance(minutes=4)


def _let_a_day_pass(emulator: Emulator) -> None:
    """Freeze every machine of two sets, several times; the owners take longer and longer."""
    clock = emulator.clock
    names = [f"web-{number}" for number in range(6)] + ["search-0", "search-1"]
    for number in range(24):
        event = emulator.vm(names[number % len(names)]).freeze()
        clock.advance(seconds=6 * 1.23**number)
        if number % 6:
            event.approve()
        clock.advance(minutes=25)
    clock.advance(hours=12)


def _begin_calendars(emulator: Emulator) -> None:
    now = emulator.clock.now
    opens, closes = now + timedelta(hours=3), now + timedelta(hours=6)
    window = f"daily {opens:%H}:00-{closes:%H}:00 UTC"
    blackout = f"{now + timedelta(days=2):%Y-%m-%d}..{now + timedelta(days=3):%Y-%m-%d} UTC Fair"
    calendar = {"windows": [window], "blackouts": [blackout]}
    firmware = {"event_type": "Redeploy", "scopes": [OTHER_SCOPE, "search"], **calendar}
    post(emulator, "maintenances", firmware)
    patches = {"name": "patches", "every": "day", "event_type": "Reboot", "hosts": ["kvm-6"]}
    post(emulator, "schedules", {**patches, **calendar})


def limited_token(emulator: Emulator, *scopes: str) -> str:
    """Return the secret of a viewer who may see no other scopes than these."""
    order = {"name": "guest", "role": "viewer", "scopes": list(scopes)}
    secret: str = post(emulator, "tokens", order)["secret"]
    return secret
