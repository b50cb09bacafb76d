"""A program in another process and another language."""

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from forewarn.testing import EmulatedVm, Emulator

HANDLER = Path(__file__).with_name("handler.sh")
SECONDS = 10


@pytest.fixture
def hooks(tmp_path: Path) -> Path:
    """Return a folder of hooks that write down how they were called."""
    for name in ("drain", "restore"):
        hook = tmp_path / name
        hook.write_text(f'#!/bin/sh\necho {name} "$@" >> "{tmp_path}/log"\n', encoding="utf-8")
        hook.chmod(0o755)
    return tmp_path


@contextmanager
def handler(vm: EmulatedVm, hooks: Path) -> Iterator[None]:
    environment = os.environ | vm.environment | {"HOOKS": str(hooks)}  # FOREWARN_METADATA is in it
    process = subprocess.Popen(["sh", HANDLER], env=environment)
    try:
        yield
    finally:
        process.terminate()
        process.wait(SECONDS)


def await_log(hooks: Path, expected: list[str]) -> None:
    deadline = time.monotonic() + SECONDS
    log = hooks / "log"
    while (called := log.read_text("utf-8").splitlines() if log.exists() else []) != expected:
        assert time.monotonic() < deadline, f"the hooks were called so: {called}"
        time.sleep(0.05)


def test_handler_drains_approves_and_restores(scheduled_events: Emulator, hooks: Path) -> None:
    web = scheduled_events.vm("web-0")

    with handler(web, hooks):
        redeploy = web.redeploy()
        scheduled_events.await_started(redeploy, timeout=SECONDS)
        await_log(hooks, ["drain Redeploy"])

        scheduled_events.clock.advance(minutes=10)

        await_log(hooks, ["drain Redeploy", "restore Redeploy"])


def test_handler_that_cannot_drain_does_not_approve(
    scheduled_events: Emulator, hooks: Path
) -> None:
    web = scheduled_events.vm("web-0")
    (hooks / "drain").write_text(f"#!/bin/sh\necho drain >> '{hooks}/log'; exit 1\n", "utf-8")

    with handler(web, hooks):
        reboot = web.reboot()
        await_log(hooks, ["drain"])
        scheduled_events.clock.advance(minutes=14, seconds=59)
        reboot.assert_status("Scheduled")

        scheduled_events.clock.advance(seconds=1)

        reboot.assert_status("Started")
        reboot.assert_not_approved()


def test_handler_survives_an_empty_body_and_a_reset(
    scheduled_events: Emulator, hooks: Path
) -> None:
    web = scheduled_events.vm("web-0")

    with handler(web, hooks):
        scheduled_events.await_polled(web, timeout=SECONDS)
        web.fault("empty-body", times=1)
        web.fault("reset", times=2)
        scheduled_events.await_approved(web.reboot(), timeout=SECONDS)

    await_log(hooks, ["drain Reboot"])
    assert [each.method for each in web.requests].count("POST") == 1
