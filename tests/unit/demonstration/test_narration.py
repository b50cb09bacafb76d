"""The sentences of the demo say what happened, and why."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta

from tests.unit.demonstration.conftest import NOW, announced, approved, started

from forewarn.cli.demonstration.narration import summarize, tell
from forewarn.cli.demonstration.picture import Doing, Picture, wait_for_approvals
from forewarn.domain.event import Approval, Approver, Outcome, ScheduledEvent, cancel, complete
from forewarn.domain.names import HostName, ScopeId, VmName
from forewarn.protocol.vocabulary import EventId

NOTHING = Picture(now=NOW)


def picture(*events: ScheduledEvent, seconds: float = 20) -> Picture:
    now = NOW + timedelta(seconds=seconds)
    return Picture(now=now, events={event.event_id: event for event in events})


def busy(
    doing: Doing, event: ScheduledEvent, *vms: str
) -> Mapping[VmName, Mapping[EventId, Doing]]:
    return {VmName(vm): {event.event_id: doing} for vm in vms}


def told(before: Picture, after: Picture) -> list[str]:
    return [str(line) for line in tell(before, after)]


def test_nothing_new_is_not_told() -> None:
    known = picture(started(approved(announced(1, "web-0"), "web-0"), 3))

    assert told(known, known) == []


def test_announcement_says_until_when_and_whose_approval_counts() -> None:
    events = (
        announced(1, "web-0", "web-3"),
        announced(2, "FrontEnd_IN_0", "BackEnd_IN_0"),
        announced(3, "batch_0", "batch_2"),
        announced(4, "db", is_rolled_out=False),
    )

    assert told(NOTHING, picture(*events)) == [
        (
            "08:00:00  kvm-1: Freeze of web-0, web-3 is announced for 08:00:15; "
            "one approval starts it early"
        ),
        (
            "08:00:00  kvm-1: Freeze of FrontEnd_IN_0, BackEnd_IN_0 is announced for 08:00:15; "
            "all must approve to start it early"
        ),
        (
            "08:00:00  kvm-4: Freeze of batch_0, batch_2 is announced for 08:00:15; "
            "batch_0 leads, its approval starts it early"
        ),
        "08:00:00  Freeze of db is announced for 08:00:15; its approval starts it early",
    ]


def test_approval_says_whom_the_host_still_waits_for() -> None:
    web, shop = announced(1, "web-0", "web-3"), announced(2, "FrontEnd_IN_0", "BackEnd_IN_0")

    after = picture(approved(web, "web-0"), approved(shop, "FrontEnd_IN_0"))

    assert told(picture(web, shop), after) == [
        "08:00:01  web-0 approves; kvm-1 waits for BackEnd_IN_0 until 08:00:15",
        "08:00:01  FrontEnd_IN_0 approves; kvm-1 waits for BackEnd_IN_0 until 08:00:15",
    ]


def test_any_of_a_set_will_do_and_an_event_without_a_host_waits_for_its_own_machines() -> None:
    web = announced(1, "web-0", "web-3")
    batch = announced(2, "batch_1", "batch_3", is_rolled_out=False)

    assert told(picture(web, batch), picture(web, approved(batch, "batch_3"))) == [
        "08:00:01  batch_3 approves; Freeze of batch_1, batch_3 waits for batch_1 until 08:00:15"
    ]
    assert wait_for_approvals([web]) == "kvm-1 waits for web-0 or web-3 until 08:00:15"


def test_last_approval_leaves_nobody_to_wait_for() -> None:
    web = announced(1, "web-0", "web-3")

    assert told(picture(web), picture(approved(web, "web-3"))) == ["08:00:01  web-3 approves"]


def test_early_start_says_which_approval_it_was() -> None:
    web = approved(announced(1, "web-0", "web-3"), "web-0")
    shop = approved(announced(2, "FrontEnd_IN_0", "BackEnd_IN_0"), "FrontEnd_IN_0", "BackEnd_IN_0")
    batch = approved(announced(3, "batch_0", "batch_2"), "batch_0")

    after = picture(*(started(event, 4) for event in (web, shop, batch)))

    assert told(picture(web, shop, batch), after) == [
        "08:00:04  kvm-1: Freeze of web-0, web-3 starts 11 s early: web-0 has approved",
        (
            "08:00:04  kvm-1: Freeze of FrontEnd_IN_0, BackEnd_IN_0 starts 11 s early: "
            "all have approved, BackEnd_IN_0 last"
        ),
        (
            "08:00:04  kvm-4: Freeze of batch_0, batch_2 starts 11 s early: "
            "batch_0, its leader, has approved"
        ),
    ]


def test_start_at_not_before_says_who_never_answered() -> None:
    web, batch = approved(announced(1, "web-1", "web-4"), "web-1"), announced(2, "batch_1")

    after = picture(started(web, 15), started(batch, 15))

    assert told(picture(web, batch), after) == [
        (
            "08:00:15  kvm-2: Freeze of web-1, web-4 starts at NotBefore: "
            "kvm-2 had to wait for batch_1"
        ),
        (
            "08:00:15  kvm-2: Freeze of batch_1 starts: "
            "NotBefore has come without the approval of batch_1"
        ),
    ]


def test_start_that_nobody_approved_is_an_operators() -> None:
    event = announced(1, "db")

    (line,) = told(picture(event), picture(started(event, 5)))

    assert line == "08:00:05  kvm-4: Freeze of db starts 10 s early: an operator says so"


def test_approval_of_an_operator_counts_for_all() -> None:
    event = announced(1, "FrontEnd_IN_0", "BackEnd_IN_0")
    operator = Approval(approver=Approver.OPERATOR, name="admin", approved_at=NOW)

    lines = told(picture(event), picture(started(replace(event, approvals=(operator,)), 1)))

    assert lines == [
        "08:00:00  admin approves",
        (
            "08:00:01  kvm-1: Freeze of FrontEnd_IN_0, BackEnd_IN_0 starts 14 s early: "
            "an operator has approved"
        ),
    ]


def test_failure_without_notice_is_told_as_one() -> None:
    event = replace(started(announced(1, "db", is_rolled_out=False), 1), is_announced=False)

    assert told(NOTHING, picture(event)) == ["08:00:01  Freeze of db starts without notice"]


def test_whole_life_between_two_looks_is_told_in_order() -> None:
    event = started(approved(announced(1, "db"), "db"), 2)
    over = complete(event, outcome=Outcome.SUCCEEDED, now=NOW + timedelta(seconds=2.3))

    verbs = [line.partition(" of db ")[2] or line[10:] for line in told(NOTHING, picture(over))]

    assert verbs == [
        "is announced for 08:00:15; its approval starts it early",
        "db approves",
        "starts 13 s early: db has approved",
        "is over after 0.3 s",
    ]


def test_end_says_how_it_went() -> None:
    event = announced(1, "db")
    failed = complete(
        started(event, 1), outcome=Outcome.FAILED, now=NOW + timedelta(seconds=3), reason="no disk"
    )
    canceled = cancel(event, now=NOW + timedelta(seconds=3), reason="aborted")

    assert told(picture(started(event, 1)), picture(failed)) == [
        "08:00:03  kvm-4: Freeze of db has failed: no disk"
    ]
    assert told(picture(event), picture(canceled)) == [
        "08:00:03  kvm-4: Freeze of db is canceled: aborted"
    ]


def test_machines_of_a_host_are_told_of_together() -> None:
    web, batch = announced(1, "web-1", "web-4"), announced(2, "batch_1", "batch_3")
    before = picture(web, batch)
    doings = {
        **busy(Doing.DRAINING, web, "web-1", "web-4"),
        **busy(Doing.SILENT, batch, "batch_1"),
        **busy(Doing.NOT_LEADING, batch, "batch_3"),
    }

    assert told(before, replace(before, doings=doings)) == [
        "08:00:20  kvm-2: web-1, web-4 drain",
        "08:00:20  kvm-2: batch_3 leaves it to its leader",
        "08:00:20  kvm-2: batch_1 says nothing",
    ]


def test_machine_puts_itself_back_when_its_event_is_over() -> None:
    event = started(announced(1, "web-0", "web-3"), 1)
    before = replace(picture(event), doings=busy(Doing.IN_IMPACT, event, "web-0", "web-3"))
    after = replace(before, doings={VmName("web-0"): {}, VmName("web-3"): {}})

    assert told(before, after) == ["08:00:20  kvm-1: web-0, web-3 are back in service"]


def test_machine_in_trouble_is_told_of_once_and_not_as_back() -> None:
    event = announced(1, "db")
    before = replace(picture(event), doings=busy(Doing.DRAINING, event, "db"))
    after = replace(before, doings={}, troubles={VmName("db"): "no answer"})

    assert told(before, after) == ["08:00:20  db is in trouble, and tries again: no answer"]
    assert told(after, after) == []


def test_host_whose_turn_has_not_come_is_told_of_once() -> None:
    web = announced(1, "web-0")
    turns = {HostName("kvm-2"): frozenset({web.scope_id, ScopeId("x/batch")})}
    after = replace(picture(web), turns=turns)

    assert told(picture(web), after) == [
        "08:00:20  kvm-2 has to wait: another update domain of web comes first"
    ]
    assert told(after, after) == []


def test_host_waits_for_the_scopes_it_shares_also_with_hosts_before_it() -> None:
    web, batch = announced(1, "web-0"), announced(2, "batch_0")
    turns = {
        HostName("kvm-2"): frozenset({batch.scope_id}),
        HostName("kvm-3"): frozenset({batch.scope_id, web.scope_id}),
    }

    assert told(picture(web), replace(picture(web), turns=turns)) == [
        "08:00:20  kvm-3 has to wait: another update domain of batch and web comes first"
    ]


def test_summary_counts_hosts_and_early_starts() -> None:
    events = (
        started(approved(announced(1, "web-0"), "web-0"), 4),
        started(announced(2, "batch_1"), 15),
        announced(3, "db"),
    )

    assert summarize(events, timedelta(seconds=44)) == (
        "The roll-out is over after 44 s: 2 hosts, 2 events. "
        "1 started early because they were approved, 1 at NotBefore."
    )
