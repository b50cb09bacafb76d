import logging
import socket
import struct
import time
from datetime import timedelta
from http.client import HTTPConnection
from pathlib import Path

import pytest
from tests.agent.conftest import ID, NOON, make_case, make_change, make_event
from tests.e2e.conftest import wait_until
from tests.needs import need_ipv6

from forewarn.agent.errors import AgentError
from forewarn.agent.listener import start_listener
from forewarn.agent.status import Status, write_metrics
from forewarn.agent.vocabulary import Consent, HookOutcome, HookPhase, RuleVerdict
from forewarn.client import ChangeKind, Polled
from forewarn.systemd import SystemdNotifier

DRAINED = {HookPhase.SCHEDULED: {"first": HookOutcome.READY}}
DRAINING = {HookPhase.SCHEDULED: {"first": HookOutcome.READY, "second": HookOutcome.RUNNING}}


def test_metrics_have_the_names_and_labels_that_dashboards_know() -> None:
    status = Status()
    status.note_poll(Polled(seconds=0.5, document_incarnation=7))
    status.note_poll(Polled(seconds=1, document_incarnation=7, trouble="it did not answer in time"))
    status.note_change(make_change(resources=("web-0", 'we"b'), event_source="Platform"))
    status.note_change(make_change(ChangeKind.STARTED, number=2))
    status.note_cases({ID: make_case(outcomes=DRAINED, consent=Consent.GIVEN)}, 1000.0)
    status.hooks = {
        (HookPhase.SCHEDULED, HookOutcome.READY): 2,
        (HookPhase.STARTED, HookOutcome.FAILED): 1,
    }

    lines = [line for line in write_metrics(status).splitlines() if not line.startswith("#")]

    prefix = "azure_scheduledevent_"
    about = f'eventID="{ID}",eventType="Reboot",resourceType="VirtualMachine"'
    date = 'eventStatus="Scheduled",notBefore="Mon, 04 Jan 2027 12:15:00 GMT"'
    timestamp = int((NOON + timedelta(minutes=15)).timestamp())
    nothing = 'eventStatus="Started",notBefore="",eventSource=""'
    started = make_event(number=2).event_id
    assert lines == [
        f"{prefix}document_incarnation 7",
        f'{prefix}event{{{about},resource="web-0",{date},eventSource="Platform"}} {timestamp}',
        f'{prefix}event{{{about},resource="we\\"b",{date},eventSource="Platform"}} {timestamp}',
        f'{prefix}event{{{about.replace(ID, started)},resource="web-0",{nothing}}} 1',
        f'{prefix}event_drain{{eventID="{ID}",type="start"}} 1000',
        f'{prefix}event_drain{{eventID="{ID}",type="finish"}} 1000',
        f'{prefix}event_approval{{eventID="{ID}"}} 1000',
        f'{prefix}request_bucket{{le="0.01"}} 0',
        f'{prefix}request_bucket{{le="0.1"}} 0',
        f'{prefix}request_bucket{{le="1.0"}} 1',
        f'{prefix}request_bucket{{le="10.0"}} 1',
        f'{prefix}request_bucket{{le="60.0"}} 1',
        f'{prefix}request_bucket{{le="+Inf"}} 1',
        f"{prefix}request_sum 0.5",
        f"{prefix}request_count 1",
        f"{prefix}request_error 1",
        'forewarn_agent_hooks_total{phase="scheduled",outcome="ready"} 2',
        'forewarn_agent_hooks_total{phase="started",outcome="failed"} 1',
    ]


def test_incarnation_is_not_shown_before_it_is_known() -> None:
    assert "document_incarnation 0" not in write_metrics(Status())


def test_drain_has_not_finished_while_a_hook_runs() -> None:
    status = Status()

    status.note_cases({ID: make_case()}, 1.0)
    assert status.drained[ID] == {}
    status.note_cases({ID: make_case(outcomes=DRAINED)}, 2.0)
    status.note_cases({ID: make_case(outcomes=DRAINING)}, 3.0)
    assert status.drained[ID] == {"start": 2.0}
    status.note_cases({ID: make_case(outcomes=DRAINED)}, 4.0)
    assert status.drained[ID] == {"start": 2.0, "finish": 4.0}
    status.note_cases({}, 5.0)

    assert (status.drained, status.approved) == ({}, {})


def test_what_was_done_before_the_agent_was_restarted_has_no_time() -> None:
    case = make_case(outcomes=DRAINED, consent=Consent.GIVEN)
    status = Status()
    status.restore({ID: case})
    assert status.is_draining

    status.note_cases({ID: case}, 1000.0)
    assert (status.drained, status.approved) == ({}, {})
    status.note_cases({}, 1001.0)
    status.note_cases({ID: case}, 1002.0)

    assert status.approved == {ID: 1002.0}


def test_event_that_was_postponed_is_not_approved_any_more() -> None:
    status = Status()
    status.note_cases({ID: make_case(consent=Consent.GIVEN)}, 1000.0)
    status.note_cases({ID: make_case(consent=Consent.OPEN)}, 1001.0)

    assert status.approved == {}


@pytest.mark.parametrize(
    ("verdict", "is_draining"),
    [(RuleVerdict.HANDLE, True), (RuleVerdict.NOTIFY, False), (RuleVerdict.IGNORE, False)],
)
def test_only_what_is_handled_drains(verdict: RuleVerdict, is_draining: bool) -> None:  # noqa: FBT001
    status = Status()

    status.note_cases({ID: make_case(verdict=verdict)}, 1.0)

    assert status.is_draining is is_draining


def test_what_is_being_shown_does_not_change() -> None:
    """Another thread writes the metrics meanwhile."""
    status = Status()
    case = make_case(outcomes=DRAINED, consent=Consent.GIVEN)
    status.note_cases({ID: case}, 1000.0)
    drained, approved, buckets = status.drained, status.approved, status.buckets
    shown = write_metrics(status)

    status.note_cases({ID: case, make_event(2).event_id: case}, 1001.0)
    status.note_poll(Polled(seconds=0.5, document_incarnation=7))
    before = Status(drained=drained, approved=approved, buckets=buckets)

    assert write_metrics(before) == shown


def test_event_that_is_gone_is_not_shown() -> None:
    status = Status()

    status.note_change(make_change())
    status.note_change(make_change(ChangeKind.GONE))

    assert status.events == {}


def test_agent_that_was_not_heard_of_is_not_healthy() -> None:
    status = Status(heartbeat=1000)

    assert status.is_alive(1059)
    assert not status.is_alive(1060)


def test_probe_that_does_not_wait_for_its_answer_is_no_news(
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "forewarn.agent")
    listener = start_listener(("127.0.0.1", 0), Status())
    with socket.create_connection(("127.0.0.1", listener.server_address[1])) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    wait_until(lambda: "probe_broken" in caplog.text, "it was not noticed", 20)
    listener.shutdown()
    listener.server_close()

    assert "Traceback" not in capfd.readouterr().err


def test_probe_that_says_nothing_is_not_listened_to_for_ever() -> None:
    listener = start_listener(("127.0.0.1", 0), Status())
    with socket.create_connection(("127.0.0.1", listener.server_address[1]), timeout=20) as probe:
        assert probe.recv(1) == b""
    listener.shutdown()
    listener.server_close()


def test_address_that_is_taken_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]

        with pytest.raises(AgentError, match=f"listen: 127.0.0.1:{port} is not available"):
            start_listener(("127.0.0.1", port), Status())


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_listener_answers_on_either_family(host: str) -> None:
    if host == "::1":
        need_ipv6()
    listener = start_listener((host, 0), Status(heartbeat=time.monotonic()))
    try:
        connection = HTTPConnection(host, listener.server_address[1], timeout=10)
        for method, path, status in (
            ("GET", "/healthz", 200),
            ("HEAD", "/readyz", 503),
            ("GET", "/metrics?name=x", 200),
        ):
            connection.request(method, path)
            answer = connection.getresponse()
            assert (answer.status, bool(answer.read())) == (status, method == "GET")
        connection.close()
    finally:
        listener.shutdown()
        listener.server_close()


@pytest.mark.skipif(not hasattr(socket, "AF_UNIX"), reason="systemd is on Linux")
def test_systemd_is_told(tmp_path: Path) -> None:
    address = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(address)
        systemd.settimeout(60)

        SystemdNotifier(address, 120.0).tell("READY=1", "STATUS=fine")

        assert systemd.recv(100) == b"READY=1\nSTATUS=fine"


def test_without_systemd_nobody_is_told() -> None:
    notifier = SystemdNotifier(None, 120.0)

    notifier.tell("READY=1")

    assert notifier.interval is None
