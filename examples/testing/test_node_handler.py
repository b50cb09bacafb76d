"""A web server in Node: what its load balancer sees before, during and after an event."""

import os
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from forewarn.testing import EmulatedVm, Emulator

HANDLER = Path(__file__).with_name("handler.mjs")
SECONDS = 10


@contextmanager
def handler(vm: EmulatedVm) -> Iterator[str]:
    """Run the server, and return the address that a load balancer asks."""
    environment = os.environ | vm.environment | {"PORT": "0", "DRAIN_SECONDS": "0"}
    with subprocess.Popen(
        ["node", HANDLER], env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            port = process.stdout.readline().removeprefix("listening on ").strip()
            yield f"http://127.0.0.1:{port}/healthz"
        finally:
            process.terminate()


def status(url: str) -> int:
    try:
        with urllib.request.urlopen(url, timeout=SECONDS) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as refused:
        refused.close()
        return refused.code


def await_status(url: str, expected: int) -> None:
    deadline = time.monotonic() + SECONDS
    while (seen := status(url)) != expected:
        assert time.monotonic() < deadline, f"/healthz still answers {seen}"
        time.sleep(0.05)


def test_server_leaves_its_load_balancer_until_the_reboot_is_over(
    scheduled_events: Emulator,
) -> None:
    web = scheduled_events.vm("web-0")

    with handler(web) as health:
        assert status(health) == 200
        reboot = web.reboot()
        scheduled_events.await_started(reboot, timeout=SECONDS)
        assert status(health) == 503

        scheduled_events.clock.advance(minutes=10)

        await_status(health, 200)
        reboot.assert_status("Completed")


def test_server_stays_when_its_neighbor_goes(scheduled_events: Emulator) -> None:
    mine, neighbor = scheduled_events.vm("web-0"), scheduled_events.vm("web-1")

    with handler(mine) as health:
        theirs = neighbor.redeploy()
        scheduled_events.await_seen(theirs, by=mine, timeout=SECONDS)
        assert status(health) == 200

        ours = mine.redeploy()
        scheduled_events.await_approved(ours, timeout=SECONDS)

        theirs.assert_not_approved()


def test_server_survives_an_update_of_the_host_and_a_reset(scheduled_events: Emulator) -> None:
    web = scheduled_events.vm("web-0")
    web.fault("status", status=410, times=1)
    web.fault("reset", times=1)

    with handler(web):
        scheduled_events.await_approved(web.reboot(), timeout=SECONDS)

    assert [request.outcome for request in web.requests][:2] == ["reset", "410 Gone"]
