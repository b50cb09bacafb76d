"""Faults from the command line to the virtual machine, through a real server."""

from tests.e2e.conftest import ServerMaker

VIRTUAL = ("--clock", "virtual", "--executor", "simulated")


def test_fault_is_met_by_one_machine_until_it_is_used_up_or_cleared(
    start_server: ServerMaker,
) -> None:
    server = start_server()

    server.command("fault", "set", "web-0", "status", "--status", "410", "--times", "1")
    server.command("fault", "set", "web-0", "empty-body")
    met = [server.poll(vm).status for vm in ("web-1", "web-0", "web-0")]
    left = server.command("fault", "list")["faults"]
    server.command("fault", "clear", "web-0")

    assert met == [200, 410, 200]
    assert [(fault["vm"], fault["kind"]) for fault in left] == [("web-0", "empty-body")]
    assert server.poll("web-0").incarnation == 0


def test_notice_is_shorter_under_a_publish_delay(start_server: ServerMaker) -> None:
    server = start_server(*VIRTUAL)
    server.command("fault", "set", "web-0", "publish-delay", "--seconds", "600")
    event = server.command("vm", "restart", "web-0")

    seen = []
    for duration in ("9m59s", "1s", "5m", "9m59s", "1s"):
        server.command("clock", "advance", duration)
        seen.append([e["EventStatus"] for e in server.poll("web-0").events])

    assert server.event(event["event_id"])["event_status"] == "Completed"
    assert seen == [[], ["Scheduled"], ["Scheduled"], ["Scheduled"], ["Started"]]
    assert server.poll("web-1").events == []


def test_faults_end_with_the_server(start_server: ServerMaker) -> None:
    server = start_server()
    server.command("fault", "set", "web-0", "reset")

    server.restart()

    assert server.poll("web-0").status == 200
    assert server.command("fault", "list") == {"faults": []}
