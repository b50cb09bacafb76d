"""What relays may ask on behalf of virtual machines, and of which."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import timedelta
from urllib.parse import quote

import httpx2
import pytest
from tests.feed.conftest import TIMEOUT, Center, machine, scope_of
from tests.http.conftest import MORNING, TOKEN
from tests.waiting import wait_until

from forewarn.desk import services
from forewarn.desk.services import FEEDS_OF_A_TOKEN
from forewarn.domain.access import Token
from forewarn.domain.names import VmName
from forewarn.domain.roles import Role
from forewarn.feed.notes import MOST_AT_ONCE, MOST_COUNTED
from forewarn.operations.access import TokenOrder, create_token, hash_secret, revoke_token
from forewarn.protocol.vocabulary import EventId

WEB = scope_of("web")


@pytest.fixture
def center() -> Iterator[Center]:
    made = Center()
    made.place(machine("a", "kvm-1", scope="web"), machine("b", "kvm-2", scope="web"))
    yield made
    made.close()


def approve(center: Center, token: str, vm: str, event: str) -> tuple[int, object]:
    order = {"vm": vm, "event_ids": [event], "where": "10.0.0.1"}
    return center.ask(token, "POST", "start-requests", order)


def approvers(center: Center, event: EventId) -> list[str]:
    found = center.store.read(lambda reading: reading.event(event))
    assert found is not None
    return [each.name for each in found.approvals]


def audited(center: Center) -> list[tuple[str, str]]:
    entries = center.store.read(lambda reading: reading.audit(limit=10))
    return [(entry.who, entry.where) for entry in entries if entry.action == "event approve"]


def test_relay_approves_for_a_machine_of_its_host(center: Center) -> None:
    event = center.announce("a")

    status, answer = approve(center, center.relay_token("kvm-1"), "a", event)

    assert (status, answer) == (200, {"scope_id": WEB, "document_incarnation": 1})
    assert approvers(center, event) == ["a"]
    assert audited(center) == [("a", "10.0.0.1 via relay relay-kvm-1")]


def test_relay_does_nothing_for_a_machine_of_another_host(center: Center) -> None:
    """It is answered as for a machine that does not exist, whatever it asks."""
    event, token = center.announce("b"), center.relay_token("kvm-1")
    later = (MORNING + timedelta(hours=1)).isoformat()

    def ask_all(vm: str) -> list[tuple[int, object]]:
        asked = [
            approve(center, token, vm, event),
            approve(center, token, vm, "never-seen"),
            center.ask(token, "GET", f"events/{event}?vm={vm}"),
            center.ask(token, "POST", f"events/{event}/postpone", {"vm": vm, "not_before": later}),
        ]
        return [(status, answer["type"]) for status, answer in asked]

    assert ask_all("b") == ask_all("nobody") == [(404, "urn:forewarn:problem:unknown-event")] * 4
    assert approvers(center, event) == []


def test_machine_that_has_moved_is_no_longer_spoken_for(center: Center) -> None:
    event, token = center.announce("a"), center.relay_token("kvm-1")
    center.place(machine("a", "kvm-2", scope="web"), machine("b", "kvm-2", scope="web"))

    assert approve(center, token, "a", event)[0] == 404
    assert approve(center, center.relay_token("kvm-2"), "a", event)[0] == 200


def test_relay_describes_and_postpones_events_as_the_server_does(center: Center) -> None:
    event, token = center.announce("a"), center.relay_token("KVM-1")

    status, described = center.ask(token, "GET", f"events/{event}?vm=a")
    refused, problem = center.ask(
        token,
        "POST",
        f"events/{event}/postpone",
        {"vm": "a", "not_before": (MORNING + timedelta(hours=1)).isoformat()},
    )

    assert (status, described["event_id"]) == (200, event)
    assert (refused, problem["type"]) == (409, "urn:forewarn:problem:postpone-refused")


def test_relay_that_comes_back_takes_the_place_of_its_oldest_feed(center: Center) -> None:
    """Feeds that broke without a word are still open on the server."""
    token, other = center.relay_token("kvm-1"), center.relay_token("kvm-2")
    with ExitStack() as stack:
        beside = stack.enter_context(center.follow(other))
        stale = [stack.enter_context(center.follow(token)) for _ in range(FEEDS_OF_A_TOKEN)]

        fresh = stack.enter_context(center.follow(token))
        fresh.until_mark()

        wait_until(stale[0].is_over, "the oldest to be dropped")
        wait_until(lambda: center.hub.followers == FEEDS_OF_A_TOKEN + 1, "the hub to know it")
        for each in (beside, *stale[1:]):
            each.until_mark()


@pytest.mark.parametrize("role", [Role.VIEWER, Role.OPERATOR, Role.ADMIN])
def test_operators_are_no_relays(center: Center, role: Role) -> None:
    secret = TOKEN
    if role is not Role.ADMIN:
        secret = f"of-{role}"
        order = TokenOrder(name=f"x-{role}", role=role)
        context = center.services.context("alice")
        center.store.write(lambda tx: create_token(tx, context, order, secret))

    asked = [
        center.ask(secret, "GET", "feed"),
        approve(center, secret, "a", "x"),
        center.ask(secret, "GET", "events/x?vm=a"),
        center.ask(secret, "POST", "events/x/postpone", {}),
        center.ask(secret, "POST", "notes", {}),
    ]

    assert [status for status, _ in asked] == [403] * 5


@pytest.mark.parametrize("path", ["feed", "start-requests", "events/x", "notes"])
def test_nobody_gets_in_without_a_token(center: Center, path: str) -> None:
    method = "POST" if path in {"start-requests", "notes"} else "GET"

    assert center.ask("nonsense", method, path)[0] == 401


def test_token_without_a_host_speaks_for_no_machine(center: Center) -> None:
    token = Token(
        name="relay", token_hash=hash_secret("stray"), role=Role.RELAY, created_at=MORNING
    )
    center.store.write(lambda tx: tx.put_token(token))

    asked = [
        center.ask("stray", "GET", "feed"),
        approve(center, "stray", "a", "x"),
        center.ask("stray", "POST", "notes", {}),
    ]

    assert [(status, problem["type"]) for status, problem in asked] == [
        (403, "urn:forewarn:problem:no-host")
    ] * 3


@pytest.mark.parametrize(
    "order",
    [
        {},
        {"vm": "a"},
        {"vm": "a", "event_ids": "x"},
        {"vm": "a", "event_ids": [], "where": "\n"},
        {"vm": "a", "event_ids": [], "more": 1},
        {"vm": "a" * 200, "event_ids": []},
    ],
)
def test_order_that_says_something_else_is_refused(center: Center, order: object) -> None:
    assert center.ask(center.relay_token("kvm-1"), "POST", "start-requests", order)[0] == 422


def test_relay_sends_few_large_bodies_at_once(
    center: Center, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(services, "LARGE_BODIES_OF_A_TOKEN", 0)
    center.stop()
    center.start()
    token = center.relay_token("kvm-1")

    few, _ = center.ask(token, "POST", "notes", {"polled": ["a"]})
    many, problem = center.ask(token, "POST", "notes", {"polled": ["a" * 100] * 700})

    assert (few, many) == (204, 429)
    assert "large bodies at once" in str(problem)


def test_polls_that_are_noted_are_written_down(center: Center) -> None:
    center.ask(center.relay_token("kvm-1"), "POST", "notes", {"polled": ["a", "b", "nobody"]})

    center.polls.commit()

    known = [VmName("a"), VmName("b")]
    assert center.store.read(lambda reading: reading.last_polls(known)) == {"a": MORNING}
    assert center.store.read(lambda reading: reading.last_polled_at(WEB)) == MORNING


def test_counts_that_are_noted_are_added(center: Center) -> None:
    notes = {"polls": {"2020-07-01": 7, "2999-01-01": 1}, "posts": 2, "refusals": {"404": 3}}

    token = center.relay_token("kvm-1")

    for _ in range(2):
        assert center.ask(token, "POST", "notes", notes)[0] == 204

    assert center.tally.polls["2020-07-01"] == 14
    assert "2999-01-01" not in center.tally.polls
    assert (center.tally.posts, center.tally.refusals) == (4, {404: 6})


HIGH = f"{MOST_COUNTED + 1} is too high; the maximum is {MOST_COUNTED}."
WHOLE = "is not a whole number."


@pytest.mark.parametrize(
    ("notes", "sentence"),
    [
        ('{"posts": 9007199254740992}', "posts: 9007199254740992 is too high; the maximum is 1"),
        (f'{{"posts": {MOST_COUNTED + 1}}}', f"posts: {HIGH}"),
        (f'{{"polls": {{"2020-07-01": {MOST_COUNTED + 1}}}}}', f"2020-07-01: {HIGH}"),
        (f'{{"refusals": {{"404": {MOST_COUNTED + 1}}}}}', f"404: {HIGH}"),
        ('{"posts": -1}', "posts: -1 is too low; the minimum is 0."),
        ('{"posts": NaN}', f"posts: nan {WHOLE}"),
        ('{"posts": Infinity}', f"posts: inf {WHOLE}"),
        ('{"posts": 1.0}', f"posts: 1.0 {WHOLE}"),
        ('{"posts": true}', f"posts: True {WHOLE}"),
        ('{"posts": "1"}', f"posts: '1' {WHOLE}"),
        ('{"polls": {"2020-07-01": true}}', f"2020-07-01: True {WHOLE}"),
        ('{"refusals": {"404": -1}}', "404: -1 is too low; the minimum is 0."),
        ('{"refusals": {"200": 1}}', "200 is too low; the minimum is 400."),
        (
            json.dumps({"polls": dict.fromkeys(map(str, range(101)), 1)}),
            "polls: it has more than 100 items.",
        ),
        (json.dumps({"polls": {"x" * 129: 1}}), "it has more than 128 characters."),
        (
            json.dumps({"polled": ["a"] * (MOST_AT_ONCE + 1)}),
            f"polled: it has more than {MOST_AT_ONCE} items.",
        ),
    ],
    ids=lambda value: value[:30],
)
def test_notes_that_cannot_be_are_refused_and_change_nothing(
    center: Center, notes: str, sentence: str
) -> None:
    headers = {"Authorization": f"Bearer {center.relay_token('kvm-1')}"}
    url = f"http://127.0.0.1:{center.port}/api/v1/front/notes"

    answer = httpx2.post(url, headers=headers, content=notes)

    assert answer.status_code == 422
    assert sentence in answer.json()["detail"]
    assert (center.tally.posts, center.tally.refusals, center.polled) == (0, {}, [])
    assert set(center.tally.polls.values()) == {0}


@pytest.mark.parametrize("place", ["9" * 5000, "x:y", ":", "%00", "²"])
def test_place_that_cannot_be_is_told_everything(center: Center, place: str) -> None:
    after = quote(f"{center.hub.feed}:{place}")

    with center.follow(center.relay_token("kvm-1"), after) as heard:
        heard.until_mark()

    assert not heard.hello.resumed
    assert VmName("a") in heard.machines


def test_feed_ends_with_its_token(center: Center, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("forewarn.control.front._IDENTIFIED_SECONDS", 0.0)
    secret = center.relay_token("kvm-1")
    context = center.services.context("alice")
    with center.follow(secret) as heard:
        heard.until_mark()
        center.store.write(lambda tx: revoke_token(tx, context, "relay-kvm-1"))

        wait_until(heard.is_over, "the feed to end", TIMEOUT)
