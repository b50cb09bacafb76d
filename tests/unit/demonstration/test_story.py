"""The sentences of the demo say what happens, and why."""

from dataclasses import replace
from datetime import timedelta

import pytest
from tests.unit.demonstration.conftest import NOW, announced, approved, make_scene, started

from forewarn.cli.demonstration.story import explain, headline, summarize, tell
from forewarn.domain.event import Approver, Outcome, ScheduledEvent, cancel, complete
from forewarn.domain.standing import MaintenanceStatus

WEB, SILENT = announced("web-1", "kvm-2"), announced("batch_1", "kvm-2")


def told(*events: ScheduledEvent) -> list[str]:
    return [str(line) for line in tell(make_scene(*events))]


def over(event: ScheduledEvent, outcome: Outcome, reason: str = "") -> ScheduledEvent:
    return complete(event, outcome=outcome, now=NOW + timedelta(seconds=9), reason=reason)


def test_events_of_a_host_are_told_as_one_step() -> None:
    hasty = approved(announced("cart-1", "kvm-2"))
    events = [approved(SILENT, by=Approver.OPERATOR, seconds=3), approved(WEB, 2), hasty]

    lines = told(*(over(started(event, 4), Outcome.SUCCEEDED) for event in events))

    assert lines == [
        "08:00:00  kvm-2: Freeze announced for 08:00:15 to web-1, cart-1, batch_1",
        "08:00:01  cart-1 approves without draining",
        "08:00:02  web-1 has drained and approves",
        "08:00:03  An operator approves for batch_1",
        "08:00:04  kvm-2: Freeze starts 11 s early: every machine has approved",
        "08:00:09  kvm-2: Freeze succeeded after 5 s",
    ]


@pytest.mark.parametrize(
    ("event", "last"),
    [
        (started(SILENT, 15.1), "kvm-2: Freeze starts at NotBefore: batch_1 never approved"),
        (started(approved(WEB), 15), "kvm-2: Freeze starts at NotBefore"),
        (started(WEB, 14.5), "kvm-2: Freeze starts 0.5 s early: an operator started it"),
        (replace(started(WEB, 1), is_announced=False), "kvm-2: Freeze starts without notice"),
        (
            over(started(WEB, 1), Outcome.FAILED, "no disk"),
            "kvm-2: Freeze failed after 8 s: no disk",
        ),
        (cancel(WEB, now=NOW, reason="aborted"), "kvm-2: Freeze canceled after 0.0 s: aborted"),
        (announced("web-0"), "web-0: Freeze announced for 08:00:15"),
        (approved(announced("stranger")), "stranger has drained and approves"),
    ],
)
def test_last_sentence_says_why(event: ScheduledEvent, last: str) -> None:
    assert told(event)[-1].partition("  ")[2] == last


@pytest.mark.parametrize(
    ("status", "line"),
    [
        (None, "Freeze to come · host 1 of 4 · 16 machines · 0 requests lost by web"),
        ("running", "Rolling Freeze · host 2 of 4 · 16 machines · 0 requests lost by web"),
        ("held", "Freeze held · host 2 of 4 · 16 machines · 0 requests lost by web"),
        ("completed", "Freeze completed · host 2 of 4 · 16 machines · 0 requests lost by web"),
    ],
)
def test_headline_says_where_the_roll_out_is(status: str | None, line: str) -> None:
    scene = make_scene(*([WEB, announced("web-0", "elsewhere")] if status else []))
    scene.status = MaintenanceStatus(status) if status else None

    assert headline(scene) == line


@pytest.mark.parametrize(
    ("events", "sentence"),
    [
        ([], "Every machine serves requests and polls for Scheduled Events."),
        ([WEB, SILENT], "kvm-2 waits for web-1 to drain."),
        (
            [approved(WEB), SILENT],
            "kvm-2 waits for batch_1, which never responds. Press 'a' to approve for it.",
        ),
        (
            [started(WEB, 2)],
            "kvm-2 is frozen. web sends it no requests; cart does, and loses them.",
        ),
    ],
)
def test_explanation_says_what_the_roll_out_waits_for(
    events: list[ScheduledEvent], sentence: str
) -> None:
    assert explain(make_scene(*events, suggested=["ls"])) == sentence


def test_who_cannot_press_a_key_is_not_told_to() -> None:
    assert explain(make_scene(SILENT)) == "kvm-2 waits for batch_1, which never responds."


def test_summary_counts_the_hosts_that_started_early() -> None:
    scene = make_scene(started(WEB, 15), started(approved(announced("web-0", "kvm-1")), 3))

    assert summarize(scene, timedelta(seconds=24)) == (
        "Done in 24 s. 1 of 2 hosts started early: all their machines approved."
    )
