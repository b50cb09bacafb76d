"""The agent as a service of the systemd that booted the machine."""

import re

from tests.e2e.conftest import wait_until
from tests.lab.conftest import LabServerMaker
from tests.lab.guests import Guest
from tests.lab.test_events import WHOLE_LIFE

UNIT = "/etc/systemd/system/forewarn-agent.service"
WATCHDOG = "[Service]\nWatchdogSec=5"
RESTART_SECONDS = 90.0
MOST_EXPOSED = 4.5
"""What `systemd-analyze security` may say; 10 is a unit without restrictions."""


def test_unit_is_active_once_the_agent_is_ready_and_systemd_has_no_complaint(
    guest: Guest, start_server: LabServerMaker
) -> None:
    guest.enable_agent(start_server().metadata_port)

    assert guest.ask_systemd("Type") == "notify"
    assert guest.ask_systemd("ActiveState") == "active"
    assert guest.ask_systemd("NRestarts") == "0"
    assert guest.run(f"systemd-analyze verify {UNIT}") == ""
    report = guest.run("systemd-analyze security --no-pager forewarn-agent")
    exposure = re.search(r"Overall exposure level .*: ([\d.]+)", report)
    assert exposure, report
    assert float(exposure[1]) <= MOST_EXPOSED, report


def test_agent_that_hangs_is_restarted_by_the_watchdog_and_goes_on(
    guest: Guest, start_server: LabServerMaker
) -> None:
    guest.write(f"{UNIT}.d/watchdog.conf", WATCHDOG)
    guest.run("systemctl daemon-reload")
    server = start_server()
    guest.enable_agent(server.metadata_port)
    (event,) = server.create("Reboot", "solo-0")
    guest.wait_for_note("end started")
    hanging = guest.ask_systemd("MainPID")

    guest.run("systemctl kill --kill-whom=main --signal=STOP forewarn-agent")
    wait_until(
        lambda: (
            guest.ask_systemd("NRestarts") == "1" and guest.ask_systemd("ActiveState") == "active"
        ),
        f"systemd has not restarted the agent; see {guest.console}",
        RESTART_SECONDS,
        pause=0.5,
    )
    server.complete(event["event_id"])
    guest.wait_for_note("end recovered")

    assert guest.ask_systemd("MainPID") != hanging
    assert "Failed with result 'watchdog'" in guest.run("journalctl --unit forewarn-agent")
    assert guest.notes == WHOLE_LIFE
