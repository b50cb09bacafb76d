"""What a host may fetch and report with the token of its relay, over HTTP."""

from collections.abc import Iterator
from typing import Any

import pytest
from tests.executors.host_work import WORK
from tests.feed.conftest import Center
from tests.host_worker.own_host import known, put_operation, reserve
from tests.http.conftest import TOKEN

from forewarn.domain.impact import Impact, ImpactStatus
from forewarn.domain.names import HostName
from forewarn.domain.task import TaskState
from forewarn.executors.task_input import host_task_input, read_host_task

PATH = f"host-work/{WORK.operation_id}/work"
TICKET = {"ticket": "0123456789abcdef"}
ORDER = host_task_input(WORK, epoch=7)


@pytest.fixture
def center() -> Iterator[Center]:
    made = Center()
    put_operation(made.store, WORK)
    reserve(made.store, epoch=7)
    yield made
    made.close()


def tasks(center: Center, token: str) -> Any:
    status, answer = center.ask(token, "GET", "host-work")
    assert status == 200, answer
    return answer["tasks"]


def test_host_fetches_takes_and_reports_its_work(center: Center) -> None:
    token = center.relay_token("KVM-0")

    (task,) = tasks(center, token)
    assert (task["name"], task["status"]) == ("work", "offered")
    assert read_host_task(task["order"]) == ORDER
    assert center.ask(token, "POST", f"{PATH}/take", TICKET)[0] == 204
    assert center.ask(token, "POST", f"{PATH}/take", TICKET)[0] == 204
    assert [each["status"] for each in tasks(center, token)] == ["taken"]
    report = {"status": "running", "reason": "60\x1b %"}
    assert center.ask(token, "POST", f"{PATH}/report", report)[0] == 204
    assert known(center.store).said.reason == "60 %"
    done = {"status": "done", "reason": "patched", "host": "kvm-0"}
    assert center.ask(token, "POST", f"{PATH}/report", done)[0] == 204

    assert tasks(center, token) == []
    ended = Impact(status=ImpactStatus.DONE, reason="patched", moved_to=HostName("KVM-0"))
    assert known(center.store).said == ended
    audit = center.store.read(lambda reading: reading.audit(limit=10))
    acts = [(each.who, each.actor, each.action) for each in audit if "work" in each.action]
    assert acts == [
        ("relay-KVM-0", "operator", "host work take"),
        ("relay-KVM-0", "operator", "host work done"),
    ]


def test_token_of_another_host_finds_and_changes_nothing(center: Center) -> None:
    own, other = center.relay_token("kvm-0"), center.relay_token("kvm-1")

    assert tasks(center, other) == []
    assert center.ask(other, "POST", f"{PATH}/take", TICKET)[0] == 404
    assert center.ask(own, "POST", f"{PATH}/take", TICKET)[0] == 204
    before = known(center.store)
    status, problem = center.ask(other, "POST", f"{PATH}/report", {"status": "done"})

    assert (status, problem["type"]) == (404, "urn:forewarn:problem:unknown-fetched-task")
    assert known(center.store) == before


def test_host_says_of_no_machine_that_it_is_elsewhere(center: Center) -> None:
    token = center.relay_token("kvm-0")
    center.ask(token, "POST", f"{PATH}/take", TICKET)

    report = {"status": "done", "host": "kvm-9"}
    status, problem = center.ask(token, "POST", f"{PATH}/report", report)

    assert (status, problem["type"]) == (422, "urn:forewarn:problem:other-host")
    assert known(center.store).state is TaskState.BEGUN


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        (f"{PATH}/take", {"ticket": "short"}, 422),
        (f"{PATH}/take", {}, 422),
        (f"{PATH}/report", {"status": "not begun"}, 422),
        (f"{PATH}/report", {"status": "done", "reason": "x" * 501}, 422),
        (f"{PATH}/report", {"status": "done", "run": ["rm"]}, 422),
        (f"{PATH}/report", {"status": "done"}, 409),
        ("host-work/none/work/take", TICKET, 404),
    ],
)
def test_bad_request_changes_nothing(center: Center, path: str, body: object, status: int) -> None:
    before = known(center.store)

    assert center.ask(center.relay_token("kvm-0"), "POST", path, body)[0] == status

    assert known(center.store) == before


def test_second_taker_is_refused(center: Center) -> None:
    token = center.relay_token("kvm-0")
    center.ask(token, "POST", f"{PATH}/take", TICKET)

    status, problem = center.ask(token, "POST", f"{PATH}/take", {"ticket": "f" * 16})

    assert (status, problem["type"]) == (409, "urn:forewarn:problem:taking-refused")


def test_operators_fetch_nothing(center: Center) -> None:
    assert center.ask(TOKEN, "GET", "host-work")[0] == 403
    assert center.ask(TOKEN, "POST", f"{PATH}/take", TICKET)[0] == 403
    assert center.ask(TOKEN, "POST", f"{PATH}/report", {"status": "done"})[0] == 403

    assert known(center.store).state is TaskState.RESERVED
