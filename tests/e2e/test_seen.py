"""What a virtual machine has seen, compared with what it was really served while it was moved."""

import contextlib
import json
import random
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from urllib.parse import quote

from tests.e2e.conftest import ANSWER_SECONDS, Client, Server, ServerMaker

ROUNDS = 12
NEAR = 4
"""How many polls before and after a change are looked back at."""
SWAPPING = timedelta(milliseconds=20)
"""How long it may take to note that a change was put up, during which it is served already."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Poll:
    sent: datetime
    incarnation: int
    received: datetime


def test_machine_has_seen_what_it_was_served_while_it_was_moved(start_server: ServerMaker) -> None:
    server = start_server("--executor", "manual")

    with polling(server) as polls:
        move_about(server, random.Random(7))  # noqa: S311 - the same walk each time

    with contextlib.closing(server.operator_client()) as operator:
        wrong = [poll for poll in near_changes(polls) if not was_seen(operator, poll)]
    assert len({poll.incarnation for poll in polls}) > ROUNDS
    assert wrong == []


@contextlib.contextmanager
def polling(server: Server) -> Iterator[list[Poll]]:
    """Poll without a pause until the end of the block."""
    polls: list[Poll] = []
    stopping = threading.Event()

    def poll() -> None:
        with contextlib.closing(server.vm_client()) as client:
            while not stopping.is_set():
                sent = datetime.now(UTC)  # noqa: TID251 - the server has the same clock
                incarnation = client.poll("web-0").incarnation
                received = datetime.now(UTC)  # noqa: TID251
                polls.append(Poll(sent=sent, incarnation=incarnation, received=received))

    thread = threading.Thread(target=poll)
    thread.start()
    try:
        yield polls
    finally:
        stopping.set()
        thread.join(ANSWER_SECONDS)


def move_about(server: Server, chance: random.Random) -> None:
    for _ in range(ROUNDS):
        place = chance.choice([{}, {"availability_set": "web"}])
        vms = [{"name": "web-0", **place}, {"name": "web-1", "availability_set": "web"}]
        fleet = {"availability_set": [{"name": "web"}], "virtual_machine": vms}
        assert server.operate("POST", "fleet", {"fleet": fleet}).status == 200
        (event,) = server.create("Freeze", chance.choice(["web-0", "web-1"]))
        server.cancel(event["event_id"])


def near_changes(polls: list[Poll]) -> list[Poll]:
    changes = [
        number
        for number in range(1, len(polls))
        if polls[number].incarnation != polls[number - 1].incarnation
    ]
    near = {
        number + step
        for number in changes
        for step in range(-NEAR, NEAR)
        if 0 <= number + step < len(polls)
    }
    return [polls[number] for number in sorted(near)]


def was_seen(operator: Client, poll: Poll) -> bool:
    first, last = (
        incarnation_at(operator, moment) for moment in (poll.sent, poll.received + SWAPPING)
    )
    return first <= poll.incarnation <= last


def incarnation_at(operator: Client, moment: datetime) -> int:
    path = f"/api/v1/virtual-machines/web-0/seen?at={quote(moment.isoformat())}"
    return int(json.loads(operator.ask("GET", path).body)["DocumentIncarnation"])
