"""A real server follows a real program and libvirt's test driver, and says when they fail."""

import signal
from pathlib import Path

import pytest
from tests.discovery.conftest import NETWORK, domain
from tests.e2e.conftest import ANSWER_SECONDS, Server, ServerMaker, wait_until
from tests.needs import need_libvirt

SCRIPT = '#!/bin/sh\ncat "$(dirname "$0")/inventory.toml"\n'
TABLE = """
[[discovery]]
name = "cmdb"
run = ["./inventory"]
every = "1s"
remove_after = 2
most_missing = 50
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    script = tmp_path / "inventory"
    script.write_text(SCRIPT, encoding="utf-8")
    script.chmod(0o755)
    path = tmp_path / "discovery.toml"
    path.write_text(TABLE, encoding="utf-8")
    return path


def report(file: Path, **hosts: str) -> None:
    """Have the program print machines, each on a host."""
    entries = (
        f'[[virtual_machine]]\nname = "{name}"\nhost = "{host}"\n' for name, host in hosts.items()
    )
    new = file.with_name("new.toml")
    new.write_text("".join(entries), encoding="utf-8")
    new.rename(file.with_name("inventory.toml"))


def place(server: Server, vm: str) -> str | None:
    answer = server.operate("GET", f"virtual-machines/{vm}")
    return answer.json()["host"] if answer.status == 200 else None


def problem(server: Server) -> str:
    sources = server.operate("GET", "discovery").json()["sources"]
    return str(sources[0]["problem"]) if sources else ""


def wait_for_place(server: Server, vm: str, host: str | None) -> None:
    wait_until(lambda: place(server, vm) == host, f"{vm} is not on {host}", ANSWER_SECONDS)


def test_machines_are_followed_and_not_in_the_middle_of_an_event(
    start_server: ServerMaker, file: Path
) -> None:
    report(file, a="kvm-1", b="kvm-1")
    server = start_server("--discovery-file", str(file))
    wait_for_place(server, "a", "kvm-1")

    (event,) = server.create("Freeze", "a", started=True)
    report(file, a="kvm-2", b="kvm-2")
    wait_for_place(server, "b", "kvm-2")
    assert place(server, "a") == "kvm-1"
    server.complete(event["event_id"])
    wait_for_place(server, "a", "kvm-2")

    report(file, b="kvm-2")
    wait_for_place(server, "a", None)
    audit = server.operate("GET", "audit?action=fleet%20discover").json()["audit"]
    assert {entry["who"] for entry in audit} == {"discovery cmdb"}
    assert "- a" in audit[-1]["detail"]
    assert server.stop() == 0


def test_source_that_fails_or_reports_nothing_changes_nothing_and_says_so(
    start_server: ServerMaker, file: Path
) -> None:
    report(file, a="kvm-1")
    server = start_server("--discovery-file", str(file))
    wait_for_place(server, "a", "kvm-1")

    report(file)
    wait_until(lambda: "reports no" in problem(server), "no doubt", ANSWER_SECONDS)
    file.with_name("inventory.toml").unlink()
    wait_until(lambda: "No such file" in problem(server), "no failure", ANSWER_SECONDS)

    assert place(server, "a") == "kvm-1"
    doctor = server.try_command("doctor", "--remote").stdout
    assert "The fleet does not follow cmdb" in doctor
    assert "No such file" in doctor
    table = server.try_command("fleet", "sources").stdout
    assert "failed" in table
    assert "! cmdb: " in table
    assert 'forewarn_discovery_working{source="cmdb"} 0.0' in metrics(server)

    report(file, a="kvm-3")
    wait_for_place(server, "a", "kvm-3")
    wait_until(lambda: not problem(server), "no recovery", ANSWER_SECONDS)
    said = server.said()
    assert said.count("discovery_failed") == 2
    assert said.count("discovery_recovered") == 1
    assert 'forewarn_discovery_working{source="cmdb"} 1.0' in metrics(server)
    assert (
        "Sources that the fleet follows: cmdb." in server.try_command("doctor", "--remote").stdout
    )


def metrics(server: Server) -> str:
    client = server.operator_client()
    try:
        return client.ask("GET", "/metrics").body.decode()
    finally:
        client.close()


def test_file_is_read_again_on_sighup_and_a_wrong_one_changes_nothing(
    start_server: ServerMaker, file: Path, tmp_path: Path
) -> None:
    need_libvirt()
    report(file, a="kvm-1")
    server = start_server("--discovery-file", str(file))
    wait_for_place(server, "a", "kvm-1")
    assert server.process is not None

    file.write_text("[[discovery", encoding="utf-8")
    server.process.send_signal(signal.SIGHUP)
    wait_until(lambda: "discovery_file_wrong" in server.said(), "no reload", ANSWER_SECONDS)
    report(file, a="kvm-2")
    wait_for_place(server, "a", "kvm-2")

    node = tmp_path / "node.xml"
    node.write_text(f"<node>{NETWORK}{domain(7, 'guest')}</node>", encoding="utf-8")
    libvirt = f'[[discovery]]\nname = "kvm"\nlibvirt = ["test:///{node}"]\nhost = "kvm-7"\n'
    file.write_text(TABLE + libvirt, encoding="utf-8")
    server.process.send_signal(signal.SIGHUP)

    wait_for_place(server, "guest", "kvm-7")
    found = server.operate("GET", "virtual-machines/guest").json()
    assert found["vm_id"] == "4a6b1f0e-0000-4000-8000-000000000007"
    assert found["labels"] == {"discovery": "kvm"}


def test_server_does_not_start_with_a_wrong_file(make_server: ServerMaker, file: Path) -> None:
    file.write_text('[[discovery]]\nname = "x"\n', encoding="utf-8")

    ended = make_server("--discovery-file", str(file)).run_to_the_end()

    assert ended.returncode != 0
    assert "discovery.toml:2: name of discovery 1: write either libvirt or run." in ended.stderr


def test_sources_are_forgotten_by_a_server_without_their_file(
    make_server: ServerMaker, file: Path
) -> None:
    report(file, a="kvm-1")
    server = make_server("--discovery-file", str(file))
    server.start()
    wait_for_place(server, "a", "kvm-1")
    wait_until(
        lambda: "cmdb" in server.try_command("fleet", "sources").stdout, "no source", ANSWER_SECONDS
    )
    assert server.stop() == 0
    server.flags = tuple(flag for flag in server.flags if "discovery" not in flag)

    server.start()

    assert server.operate("GET", "discovery").json() == {"sources": []}
    assert place(server, "a") == "kvm-1"
