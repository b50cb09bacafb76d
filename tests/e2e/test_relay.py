"""Relays on two hosts, over TLS: guests read and approve, whoever of the others is away."""

import json
import socket
import subprocess
import time
from collections.abc import Generator, Mapping
from http import HTTPStatus
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.conftest import ANSWER_SECONDS, START_SECONDS, wait_until
from tests.e2e.relays import METADATA, Guest, Site, build_site, is_served
from tests.e2e.test_replica_cut_off import ip

CUT_SECONDS = 6.0
SILENCE_SECONDS = 2.0
"""An answer takes milliseconds."""
CONVERGED_SECONDS = 45.0
"""A relay looks for the server at least every 15 s, and waits for a connection that is lost."""


@pytest.fixture
def site(tmp_path: Path, environment: Mapping[str, str]) -> Generator[Site]:
    with build_site(tmp_path, environment) as built:
        built.begin()
        yield built


def test_guests_are_served_whatever_is_away(site: Site) -> None:
    assert json.loads(site.guests["web-1"].curl())["Events"] == []

    live_through_outages(site, CUT_SECONDS)


def live_through_outages(site: Site, cut_seconds: float) -> None:
    """Kill the server, cut a link for so long, kill a relay meanwhile; guests poll all the time."""
    course = Outages(site)
    for guest in site.guests.values():
        guest.begin_to_poll()

    course.read_and_approve()
    course.kill_the_server()
    course.cut_a_link(cut_seconds)
    course.converge()
    for guest in site.guests.values():
        guest.stop_polling()

    course.check_polls()
    course.check_approvals()


class Outages:
    """What happens to a site, and what guests were acknowledged."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.web = (site.guests["web-1"], site.guests["web-2"])
        self.solo = (site.guests["solo-1"], site.guests["solo-2"])
        self.acknowledged: list[tuple[str, str]] = []
        self.shared = self.alone = ""
        self.down_from = self.down_to = 0.0

    def read_and_approve(self) -> None:
        """Both hosts read one document."""
        self.shared = self.site.centre.create("web-1")
        for guest in self.web:
            await_status(guest, self.shared, "Scheduled")
        assert self.approve(self.web[0], self.shared)
        for guest in self.web:
            await_status(guest, self.shared, "Started")

    def kill_the_server(self) -> None:
        """Who only polls does not notice; approvals are taken again when the server is back."""
        guest = self.solo[0]
        self.alone = self.site.centre.create("solo-1")
        await_status(guest, self.alone, "Scheduled")
        self.site.centre.kill()
        assert not self.approve(guest, self.alone)
        assert guest.statuses() == {self.alone: "Scheduled"}
        self.site.centre.serve()
        self.insist(guest, self.alone)
        await_status(guest, self.alone, "Started")

    def cut_a_link(self, seconds: float) -> None:
        """The relay behind it is killed and started meanwhile, and serves what it was told last."""
        cut_off = self.site.hosts[0]
        cut_off.cut()
        ends_at = time.monotonic() + seconds
        later = self.site.centre.create("solo-2")
        self.site.centre.operate("POST", f"events/{self.shared}/complete")
        await_status(self.solo[1], later, "Scheduled")
        assert self.approve(self.solo[1], later)
        assert not self.approve(self.solo[0], self.alone)
        self.down_from = time.monotonic()
        cut_off.kill()
        cut_off.relay()
        wait_until(lambda: is_served(self.solo[0]), "nothing is served from disk", START_SECONDS)
        self.down_to = time.monotonic()
        assert self.web[0].statuses() == {self.shared: "Started"}
        assert not self.approve(self.web[0], self.shared)
        time.sleep(max(0.0, ends_at - time.monotonic()))
        cut_off.mend()

    def converge(self) -> None:
        """Everybody reads the same again."""
        last = self.site.centre.create("web-2")
        for guest in self.web:
            await_status(guest, last, "Scheduled", CONVERGED_SECONDS)
        self.insist(self.web[0], last)
        for guest in self.web:
            await_status(guest, last, "Started")
        assert self.web[0].document() == self.web[1].document()

    def approve(self, guest: Guest, event_id: str) -> bool:
        """Tell whether the approval of *guest* was acknowledged; otherwise it is to try again."""
        status, headers, _ = guest.approve(event_id)
        if status == HTTPStatus.OK:
            self.acknowledged.append((guest.vm, event_id))
            return True
        assert status == HTTPStatus.SERVICE_UNAVAILABLE
        assert int(headers["Retry-After"]) >= 1
        return False

    def insist(self, guest: Guest, event_id: str) -> None:
        wait_until(
            lambda: self.approve(guest, event_id), "no approval is taken", CONVERGED_SECONDS, 0.2
        )

    def check_polls(self) -> None:
        """No poll failed, except while the process of the own relay was down; none went back."""
        for guest in self.site.guests.values():
            is_behind_killed = guest.vm.endswith("-1")
            failed = [
                seen
                for seen in guest.seen
                if seen.problem
                and not (is_behind_killed and self.down_from <= seen.at <= self.down_to)
            ]
            answered = [seen.incarnation for seen in guest.seen if not seen.problem]
            assert failed == [], guest.vm
            assert len(answered) > 100, guest.vm
            assert all(before <= after for before, after in pairwise(answered)), guest.vm

    def check_approvals(self) -> None:
        """What a guest was told is approved, is in the store."""
        assert len(self.acknowledged) == 4
        for vm, event_id in self.acknowledged:
            event = self.site.centre.operate("GET", f"events/{event_id}")
            by = [line for line in event["ledger"] if line["what"] == "approved"]
            assert [line["who"] for line in by] == [vm], event
            assert by[0]["where"].endswith(f" via relay relay-kvm-{vm[-1]}")


def await_status(guest: Guest, event_id: str, status: str, seconds: float = ANSWER_SECONDS) -> None:
    wait_until(
        lambda: guest.statuses().get(event_id) == status, f"{guest.vm} sees no {status}", seconds
    )


def test_guest_cannot_use_its_relay_for_machines_of_other_hosts(site: Site) -> None:
    foreign, own = site.centre.create("solo-2"), site.centre.create("solo-1")
    guest = site.guests["solo-1"]
    await_status(guest, own, "Scheduled")
    extension = "/metadata/forewarn/v1"

    assert guest.statuses() == {own: "Scheduled"}
    assert guest.approve(foreign)[0] == HTTPStatus.BAD_REQUEST
    assert guest.ask(path=f"{extension}/events/{foreign}")[0] == HTTPStatus.NOT_FOUND
    postponed = guest.ask(
        "POST", f"{extension}/events/{foreign}/postpone", {"not_before": "2099-01-01T00:00:00Z"}
    )
    assert postponed[0] == HTTPStatus.NOT_FOUND
    for vm in ("solo-2", "web-1"):
        spoofed = guest.ask(path=f"/vm/{vm}/metadata/scheduledevents?api-version=2020-07-01")
        assert spoofed[0] == HTTPStatus.NOT_FOUND, spoofed
    for headers in (
        {"X_Forwarded_For": "10.92.0.12"},
        {"Forwarded": "for=10.92.0.12"},
        {"X_Instance_ID": "solo-2", "X_Instance_ID_Signature": "0" * 64},
        {"X_Real_IP": "10.92.0.12"},
    ):
        status, _, document = guest.ask(**headers)
        assert status != HTTPStatus.OK or own in json.dumps(document), headers
    # Its address, which the bridge of this host does not keep out, is nobody's here.
    site.take_address("solo-1", "10.92.0.12")
    assert guest.ask(source="10.92.0.12")[0] == HTTPStatus.NOT_FOUND
    assert not can_pass_for_a_neighbour(site)
    assert events_of(site, foreign)["approvals"] == []
    assert events_of(site, foreign)["event_status"] == "Scheduled"


def test_relay_answers_only_on_its_interface(site: Site) -> None:
    host = site.hosts[0]
    ip("-netns", site.centre.name, "route", "add", f"{METADATA}/32", "via", "10.90.0.11")

    host.run(connect)  # from the host itself, which is on the bridge, too
    with pytest.raises(ConnectionRefusedError):
        site.centre.run(connect)


def can_pass_for_a_neighbour(site: Site) -> bool:
    """Tell whether web-1, which has the rules of the page, is answered at the address of solo-1."""
    guest, host = site.guests["web-1"], site.hosts[0]
    site.take_address(guest.vm, "10.91.0.12")
    command = ["/sbin/ip", "-netns", guest.name, "-brief", "link", "show", "eth0"]
    _, _, mac, *_ = subprocess.check_output(command, text=True).split()
    # The host takes web-1 for it already; only the rules are left.
    neighbour = ("10.91.0.12", "lladdr", mac, "dev", "br0")
    ip("-netns", host.name, "neighbour", "replace", *neighbour)
    try:
        guest.run(lambda: connect(source="10.91.0.12"))
    except TimeoutError:
        return False
    return True


def connect(source: str = "") -> None:
    """Connect to the service, if it answers soon."""
    with socket.create_connection((METADATA, 80), SILENCE_SECONDS, source_address=(source, 0)):
        pass


def events_of(site: Site, event_id: str) -> Any:
    return site.centre.operate("GET", f"events/{event_id}")


def test_stolen_token_opens_nothing_but_the_feed_of_its_host(site: Site) -> None:
    foreign = site.centre.create("solo-2")
    token = site.hosts[0].token_file.read_text(encoding="ascii")
    status, openapi = site.centre.ask("GET", "/api/openapi.json", token=token)
    assert status == HTTPStatus.OK
    tried = 0
    for path, methods in openapi["paths"].items():
        if path.startswith(("/healthz", "/readyz")):
            continue
        for method in methods:
            tried += 1
            filled = path.replace("{event_id}", foreign).replace("{", "").replace("}", "")
            body: object = None if method in {"get", "delete"} else {}
            refusal, content = site.centre.ask(method.upper(), filled, body, token=token)
            assert refusal == HTTPStatus.FORBIDDEN, (method, path, content)
    assert tried > 80

    front = "/api/v1/front"
    asked = {"vm": "solo-2", "event_ids": [foreign], "where": "10.92.0.12"}
    later = {"vm": "solo-2", "not_before": "2099-01-01T00:00:00Z", "where": "10.92.0.12"}
    for method, path, order in (
        ("POST", "start-requests", asked),
        ("POST", f"events/{foreign}/postpone", later),
        ("GET", f"events/{foreign}?vm=solo-2", None),
        ("GET", f"events/{foreign}?vm=solo-1", None),
    ):
        refusal, content = site.centre.ask(method, f"{front}/{path}", order, token=token)
        assert refusal == HTTPStatus.NOT_FOUND, (path, content)
    assert site.centre.ask("GET", "/", token=token)[0] == HTTPStatus.SEE_OTHER, "no session"
    login = site.centre.ask("POST", "/login", token=token)
    assert login[0] == HTTPStatus.FORBIDDEN, login
    assert events_of(site, foreign)["approvals"] == []


def test_token_is_read_again_when_the_server_refuses_it(site: Site) -> None:
    host, guest = site.hosts[0], site.guests["solo-1"]
    guest.begin_to_poll()

    site.centre.operate("DELETE", "tokens/relay-kvm-1")
    wait_until(lambda: "was revoked" in host.said(), "the relay does not say so", CONVERGED_SECONDS)
    site.give_token(host, "relay-kvm-1-again")
    event = site.centre.create("solo-1")
    await_status(guest, event, "Scheduled", CONVERGED_SECONDS)
    guest.stop_polling()

    assert [seen.problem for seen in guest.seen if seen.problem] == []
    assert host.process is not None
    assert host.process.poll() is None


def test_machine_that_moves_is_served_by_the_relay_of_its_new_host(site: Site) -> None:
    guest = site.guests["solo-1"]
    site.centre.operate("PATCH", "virtual-machines/solo-1", {"host": "kvm-2"})

    wait_until(lambda: guest.ask()[0] == HTTPStatus.NOT_FOUND, "still here", ANSWER_SECONDS)


def test_secret_is_neither_in_arguments_nor_in_the_environment(site: Site) -> None:
    host = site.hosts[0]
    secret = host.token_file.read_bytes()
    assert host.process is not None
    process = Path(f"/proc/{host.process.pid}")

    assert b"forewarn.front.relay" in (process / "cmdline").read_bytes()
    assert secret not in (process / "cmdline").read_bytes()
    assert secret not in (process / "environ").read_bytes()
    assert secret.decode() not in host.said()
