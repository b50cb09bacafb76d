"""Messages survive everything: a receiver that is away, and a server that is killed meanwhile."""

import hashlib
import hmac
import json
import random
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from http.client import HTTPException
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.conftest import ANSWER_SECONDS, FLEET, Server, ServerMaker, wait_until
from tests.receiver import Answer, Received, Receiver

SECRET = "open-sesame"  # noqa: S105
DOWN_ATTEMPTS = 20
DELIVERY_SECONDS = 45
SLOW_SECONDS = 45
POSTPONABLE = FLEET.replace('name = "web"\n', 'name = "web"\npostpone_until = "1h"\n', 1)
CONFIGURATION = """
first_retry = 0.001
longest_retry = 0.02
attempts = 1000000

[[target]]
name = "ops"
kind = "webhook"
url = "{url}"
secret = "{secret}"

[[target]]
name = "web"
kind = "webhook"
url = "{url}?web"
secret = "{secret}"
scopes = ["web"]
phases = ["started", "finished"]
"""


@pytest.fixture
def receiver() -> Receiver:
    return Receiver()


@pytest.fixture
def configuration(tmp_path: Path, receiver: Receiver) -> Path:
    path = tmp_path / "notifications.toml"
    text = CONFIGURATION.format(url=receiver.url, secret=SECRET)
    path.write_text(text, encoding="utf-8")
    return path


@pytest.fixture
def server(make_server: ServerMaker, configuration: Path) -> Server:
    made = make_server("--notifications", str(configuration), "--executor", "manual")
    made.fleet.write_text(POSTPONABLE, encoding="utf-8")
    made.start()
    return made


def waiting(server: Server) -> list[dict[str, Any]]:
    answer = server.operate("GET", "notifications?status=waiting")
    assert answer.status == 200, answer
    found: list[dict[str, Any]] = answer.json()["notifications"]
    return found


def heads(server: Server) -> Iterator[dict[str, Any]]:
    """Return the first waiting message of each event and target: the one that is tried."""
    seen = set()
    for message in waiting(server):
        key = (message["event_id"], message["target"])
        if key not in seen:
            seen.add(key)
            yield message


def wait_for_attempts(server: Server, attempts: int) -> None:
    wait_until(
        lambda: min((head["attempts"] for head in heads(server)), default=0) >= attempts,
        f"not every message was tried {attempts} times",
        DELIVERY_SECONDS,
    )


def kill_and_start(server: Server) -> None:
    server.kill()
    server.start()


def check_signature(request: Received) -> None:
    signature = dict(part.split("=") for part in request.headers["forewarn-signature"].split(","))
    signed = f"{signature['t']}.".encode() + request.body
    assert hmac.new(SECRET.encode(), signed, hashlib.sha256).hexdigest() == signature["v1"]
    assert abs(time.time() - int(signature["t"])) < 300  # noqa: TID251 - receivers have a clock


def told(requests: list[Received], path: str) -> dict[str, list[str]]:
    """Return the phases of each event in the order they were told, repetitions left out."""
    phases: dict[str, list[str]] = defaultdict(list)
    last: dict[str, str] = {}
    for request in requests:
        if request.path != path:
            continue
        message = request.json()
        if last.get(message["subject"]) != message["id"]:
            phases[message["subject"]].append(message["data"]["phase"])
        last[message["subject"]] = message["id"]
    return dict(phases)


def check_repetitions(requests: list[Received]) -> None:
    """See that each is signed, and that those of one id are the same, byte for byte."""
    bodies: dict[str, set[bytes]] = defaultdict(set)
    for request in requests:
        check_signature(request)
        assert request.headers["webhook-id"] == request.json()["id"]
        bodies[request.json()["id"]].add(request.body)
    assert all(len(same) == 1 for same in bodies.values())
    assert len(requests) > len(bodies)


def test_every_message_arrives_in_order_and_signed_whatever_is_down(
    server: Server, receiver: Receiver
) -> None:
    (reboot,) = server.create("Reboot", "web-0")
    (freeze,) = server.create("Freeze", "solo-0")
    expected = {reboot["event_id"]: ["scheduled"], freeze["event_id"]: ["scheduled"]}

    # Nobody listens, and the server is killed again and again.
    wait_for_attempts(server, DOWN_ATTEMPTS)
    kill_and_start(server)
    path = f"events/{reboot['event_id']}"
    assert server.operate("POST", f"{path}/postpone", {"not_before": "20m"}).status == 200
    assert server.approve("web-0", reboot["event_id"]).status == 200
    server.wait_for(reboot["event_id"], "Started")
    kill_and_start(server)
    assert server.operate("POST", f"events/{freeze['event_id']}/cancel").status == 200
    assert server.operate("POST", f"{path}/complete").status == 200
    (failing,) = server.create("Redeploy", "solo-1", started=True)
    how = {"outcome": "failed", "reason": "no power"}
    assert server.operate("POST", f"events/{failing['event_id']}/complete", how).status == 200
    wait_for_attempts(server, 2 * DOWN_ATTEMPTS)
    expected[reboot["event_id"]] += ["postponed", "approved", "started", "finished"]
    expected[freeze["event_id"]] += ["canceled"]
    expected[failing["event_id"]] = ["started", "failed"]

    # It comes back, with moods, and the server is killed once more in the middle of it.
    dice = random.Random(7)  # noqa: S311

    def moody(_: Received) -> Answer:
        return dice.choice([(204, {}), (503, {}), (302, {"Location": "/elsewhere"}), None])

    receiver.answer = moody
    with receiver.listening():
        wait_until(lambda: len(receiver.received) >= 3, "nothing arrives", DELIVERY_SECONDS)
        kill_and_start(server)
        wait_until(lambda: not waiting(server), "messages still wait", DELIVERY_SECONDS)

    assert told(receiver.received, "/hook") == expected
    assert told(receiver.received, "/hook?web") == {reboot["event_id"]: ["started", "finished"]}
    check_repetitions(receiver.received)
    assert not any(secret in server.said() for secret in (SECRET, "/hook"))


def test_message_that_is_given_up_is_shown_and_can_be_tried_again(
    make_server: ServerMaker, configuration: Path, receiver: Receiver
) -> None:
    text = configuration.read_text(encoding="utf-8").replace("= 1000000", "= 3")
    configuration.write_text(text, encoding="utf-8")
    server = make_server("--notifications", str(configuration))
    server.start()
    server.create("Freeze", "solo-0")

    wait_until(lambda: not waiting(server), "it is not given up", DELIVERY_SECONDS)
    (failed,) = server.command("notification", "list", "--failed")["notifications"]
    assert (failed["target"], failed["phase"], failed["attempts"]) == ("ops", "scheduled", 3)
    assert "refused" in failed["problem"]
    assert "notification_given_up" in server.said()
    with receiver.listening():
        server.command("notification", "retry", failed["notification_id"])
        wait_until(lambda: bool(receiver.received), "it is not tried again", DELIVERY_SECONDS)

    assert receiver.received[0].json()["id"] == failed["notification_id"]
    again = server.try_command("notification", "retry", "nothing")
    assert (again.returncode, "notification list" in again.stderr) == (3, True)
    refused = server.try_command("notification", "test", "ops")
    assert (refused.returncode, "refused" in refused.stderr) == (1, True)
    with receiver.listening():
        assert server.command("notification", "test", "ops")["answer"] == "204 No Content"


def test_messages_for_a_target_that_is_gone_are_given_up_and_not_forgotten(
    server: Server, configuration: Path
) -> None:
    server.create("Freeze", "solo-0")
    server.create("Freeze", "solo-1")
    wait_for_attempts(server, 1)
    assert server.stop() == 0
    text = configuration.read_text(encoding="utf-8").replace('"ops"', '"others"')
    configuration.write_text(text, encoding="utf-8")

    server.start()

    failed = server.command("notification", "list", "--failed")["notifications"]
    assert [message["target"] for message in failed] == ["ops", "ops"]
    assert "no longer configured" in failed[0]["problem"]


def be_slow(configuration: Path) -> None:
    """Let targets take longer than anybody waits for them."""
    text = configuration.read_text(encoding="utf-8")
    slow = text.replace("secret", f"timeout = {SLOW_SECONDS}\nsecret")
    configuration.write_text(slow, encoding="utf-8")


def test_slow_receiver_keeps_nobody_waiting(
    make_server: ServerMaker, configuration: Path, receiver: Receiver
) -> None:
    be_slow(configuration)
    ended = threading.Event()

    def answer(request: Received) -> Answer:
        if not request.path.endswith("?web"):
            ended.wait(SLOW_SECONDS)
        return 204, {}

    receiver.answer = answer
    server = make_server("--notifications", str(configuration))
    with receiver.listening():
        server.start()
        server.create("Reboot", "web-0", started=True)
        began = time.monotonic()
        wait_until(
            lambda: any(request.path.endswith("?web") for request in receiver.received),
            "the second target waits for the first",
            SLOW_SECONDS / 2,
        )
        assert server.stop() == 0
        took = time.monotonic() - began
        ended.set()

    assert took < SLOW_SECONDS


def test_target_that_is_tested_does_not_keep_the_server_from_ending(
    make_server: ServerMaker, configuration: Path, receiver: Receiver
) -> None:
    be_slow(configuration)
    server = make_server("--notifications", str(configuration))
    ended = threading.Event()

    def say_nothing(_: Received) -> Answer:
        ended.wait(SLOW_SECONDS)
        return None

    def test() -> None:
        with suppress(OSError, HTTPException):
            server.operate("POST", "notification-targets/ops/test")

    receiver.answer = say_nothing
    with receiver.listening():
        server.start()
        asking = threading.Thread(target=test)
        asking.start()
        try:
            wait_until(lambda: bool(receiver.received), "it is not tested", ANSWER_SECONDS)
            began = time.monotonic()
            assert server.stop() == 0
            assert time.monotonic() - began < SLOW_SECONDS / 2
        finally:
            ended.set()
            asking.join(60)


def test_bad_configuration_is_refused_with_its_line(
    make_server: ServerMaker, configuration: Path
) -> None:
    text = configuration.read_text(encoding="utf-8").replace('"webhook"', '"pigeon"', 1)
    configuration.write_text(text, encoding="utf-8")

    refused = make_server("--notifications", str(configuration)).run_to_the_end()

    assert refused.returncode == 1
    problem = "kind of target 1: it must be one of 'webhook', 'apprise'."
    assert f"{configuration}:8: {problem}" in refused.stderr


def test_calendar_has_what_is_planned(server: Server) -> None:
    (event,) = server.create("Reboot", "web-0", duration_in_seconds=600)

    done = server.try_command("calendar", "--scope", "web")

    assert done.returncode == 0, done.stderr
    assert f"UID:{event['event_id']}" in done.stdout
    assert "DURATION:PT10M" in done.stdout
    assert "BEGIN:VEVENT" not in server.try_command("calendar", "--scope", "solo-0").stdout
    assert server.try_command("calendar", "--scope", "nobody").returncode == 3
    assert json.loads(server.try_command("calendar", "-o", "json").stdout).startswith("BEGIN:")


def test_life_of_a_maintenance_arrives_in_order(
    make_server: ServerMaker, configuration: Path, receiver: Receiver
) -> None:
    flags = ("--clock", "virtual", "--executor", "simulated")
    server = make_server("--notifications", str(configuration), *flags)
    server.start()
    with receiver.listening():
        begun = server.command("maintenance", "start", "--type", "Freeze", "--scope", "web")
        identifier = begun["maintenance_id"]
        server.command("maintenance", "pause", identifier)
        kill_and_start(server)
        server.command("maintenance", "resume", identifier)
        server.command("clock", "advance", "2h")
        wait_until(lambda: not waiting(server), "not all was delivered", DELIVERY_SECONDS)

    assert told(receiver.received, "/hook")[identifier] == ["paused", "resumed", "completed"]
    last = [request.json() for request in receiver.received if identifier in request.body.decode()]
    (completed,) = (each for each in last if each["type"] == "io.forewarn.maintenance.completed")
    assert completed["data"]["outcome"] == "succeeded"
    assert completed["data"]["places"]["succeeded"] == 1
