"""A Maintenance of sixty hosts fits on a screen, and nothing that waits is left out."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from forewarn.cli.maintenance_tables import print_blockers, print_maintenance, print_plan
from forewarn.cli.place_tables import Detail, plan_lines, status_lines

AT_ONCE: Mapping[str, Any] = {"kind": "at-once", "gate": "", "until": None, "event_ids": []}
BUSY: Mapping[str, Any] = {**AT_ONCE, "kind": "busy", "event_ids": ["E9"]}
TIMES = {"begins": "2026-03-02T12:00:00Z", "ends": "2026-03-02T12:10:00Z"}


def step(host: str | None, *vms: str, brake: Mapping[str, Any] = AT_ONCE) -> dict[str, Any]:
    share = {"scope_id": f"s/{vms[0] if vms else ''}", "update_domain": 0, "resources": list(vms)}
    return {
        "host": host,
        "shares": [{**share, "available": 2, "members": 4}] if vms else [],
        "brakes": [brake],
        "number": 1,
        "earliest": TIMES,
        "latest": {**TIMES, "ends": None},
    }


def event(host: str, **changed: object) -> dict[str, Any]:
    return {
        "event_id": "E1",
        "event_type": "Reboot",
        "event_status": "Scheduled",
        "event_source": "Platform",
        "host": host,
        "scope_id": "s/a",
        "resources": ["a"],
        "approvals": [],
        "started_at": None,
        "ended_at": None,
        "not_before": "2026-03-02T12:15:00Z",
        **changed,
    }


def maintenance(
    standings: Mapping[str, str], remaining: Sequence[object] = (), **changed: object
) -> dict[str, Any]:
    return {
        "maintenance_id": "M1",
        "status": "running",
        "hosts": list(standings),
        "resources": [],
        "soak_in_seconds": 0,
        "min_available": 0,
        "hold_all": True,
        "in_order": False,
        "notice_outside": False,
        "windows": [],
        "blackouts": [],
        "started_at": None,
        "resumed_at": None,
        "finished_at": None,
        "places": {},
        "standings": standings,
        "events": [],
        "operations": [],
        "failures": [],
        "remaining": list(remaining),
        "left_out": [],
        "duration_in_seconds": None,
        "gates": [],
        **changed,
    }


def waiting(number: int) -> dict[str, Any]:
    hosts = [f"kvm-{each:02}" for each in range(1, number + 1)]
    steps = [step(host, f"{host}-a", f"{host}-b") for host in hosts]
    return maintenance(dict.fromkeys(hosts, "waiting"), steps)


def said(row: Mapping[str, Any]) -> list[tuple[str, str, int, str]]:
    _, lines = status_lines(row)
    return [(line["place"], line["said"], line["vms"], line["waits"]) for line in lines]


def test_hosts_that_say_the_same_are_one_line() -> None:
    assert said(waiting(60)) == [("kvm-01 … kvm-60 (60 hosts)", "waiting", 120, "at-once")]


def test_few_hosts_have_a_line_each() -> None:
    assert len(said(waiting(20))) == 20


def test_every_host_that_waits_is_counted_although_others_are_in_between() -> None:
    row = waiting(60)
    for number in range(0, 60, 2):
        row["remaining"][number]["brakes"] = [BUSY]

    assert said(row) == [
        (
            "kvm-01, kvm-03, kvm-05, kvm-07, kvm-09, kvm-11, kvm-13, kvm-15 and 22 more (30 hosts)",
            "waiting",
            60,
            "busy",
        ),
        (
            "kvm-02, kvm-04, kvm-06, kvm-08, kvm-10, kvm-12, kvm-14, kvm-16 and 22 more (30 hosts)",
            "waiting",
            60,
            "at-once",
        ),
    ]


def test_what_needs_attention_comes_first() -> None:
    row = maintenance(
        {"kvm-1": "succeeded", "kvm-2": "waiting", "kvm-3": "under way", "kvm-4": "failed"},
        [step("kvm-2", "b")],
        events=[event("kvm-3"), event("kvm-3", scope_id="s/b", resources=["c"], approvals=[{}])],
        operations=[{"host": "kvm-3", "phase": "announced"}],
        failures=[{"place": "kvm-4", "ending": "failed", "reason": "no power"}],
    )

    assert said(row) == [
        ("kvm-4", "failed", 0, "retry or skip (failed: no power)"),
        ("kvm-3", "under way (announced)", 2, "approval until 2026-03-02 12:15:00Z"),
        ("kvm-2", "waiting", 1, "at-once"),
        ("kvm-1", "succeeded", 0, ""),
    ]
    assert [line["approved"] for line in status_lines(row)[1]] == ["", "1/2", "", ""]


def test_event_that_started_without_an_approval_does_not_count_as_approved() -> None:
    started = event("kvm-3", started_at="2026-03-02T12:15:00Z")
    row = maintenance({"kvm-3": "under way"}, [], events=[started])

    assert [line["approved"] for line in status_lines(row)[1]] == ["0/1"]


def test_host_whose_impact_is_under_way_waits_for_it() -> None:
    started = event("kvm-1", started_at="2026-03-02T12:15:00Z")
    row = maintenance({"kvm-1": "under way"}, events=[started])

    assert said(row) == [("kvm-1", "under way", 1, "impact")]


def test_host_without_machines_has_a_line_too(capsys: pytest.CaptureFixture[str]) -> None:
    row = maintenance({"kvm-1": "waiting"}, [step("kvm-1")])

    assert said(row) == [("kvm-1", "waiting", 0, "at-once")]
    print_maintenance(row, Detail.VM)
    assert "kvm-1" in capsys.readouterr().out.splitlines()[-1]


def test_hosts_that_an_aborted_maintenance_never_reached_show_what_they_carry() -> None:
    aborted = maintenance(
        {"kvm-1": "under way", "kvm-2": "skipped"},
        status="aborting",
        events=[event("kvm-1")],
        operations=[{"host": "kvm-1", "phase": "announced"}],
        left_out=[step("kvm-2", "b", "c")],
    )

    _, lines = status_lines(aborted)

    assert [(line["place"], line["said"], line["vms"], line["waits"]) for line in lines] == [
        ("kvm-1", "being withdrawn", 1, ""),
        ("kvm-2", "skipped", 2, ""),
    ]


def test_started_event_of_an_aborted_maintenance_is_still_under_way() -> None:
    started = event("kvm-1", started_at="2026-03-02T12:01:00Z")
    operations = [{"host": "kvm-1", "phase": "work"}]
    aborting = maintenance(
        {"kvm-1": "under way"}, status="aborting", events=[started], operations=operations
    )

    (line,) = status_lines(aborting)[1]

    assert (line["said"], line["waits"]) == ("under way (work)", "work")


@pytest.mark.parametrize(
    ("phase", "waits"),
    [
        ("impact", "impact"),
        ("verify", "verify"),
        ("return", "return"),
        ("over", "running task"),  # an operator ended the turn of the host
    ],
)
def test_host_waits_for_what_is_running_on_it(phase: str, waits: str) -> None:
    started = event("kvm-1", started_at="2026-03-02T12:01:00Z")
    operations = [{"host": "kvm-1", "phase": phase}]

    _, (line,) = status_lines(
        maintenance({"kvm-1": "under way"}, events=[started], operations=operations)
    )

    assert line["waits"] == waits


def plan(number: int) -> dict[str, Any]:
    return {
        "steps": [step(f"kvm-{each:02}", f"vm-{each}") for each in range(1, number + 1)],
        "exposure": {"is_by_host": True},
        "summary": [],
        "warnings": ["Careful."],
        "conflicts": [],
        "remarks": [],
        "errors": [],
    }


def test_plan_of_many_hosts_shows_the_first_and_folds_the_rest() -> None:
    _, lines = plan_lines(plan(60))

    assert [(line["place"], line["vms"], line["left"]) for line in lines] == [
        *((f"kvm-{each:02}", 1, "50 %") for each in range(1, 6)),
        ("kvm-06 … kvm-60 (55 hosts)", 55, "50 %"),
    ]
    assert lines[-1]["ends"] == TIMES["ends"]
    assert lines[-1]["latest"] is None


def test_steps_of_a_plan_that_never_begin_are_not_folded_with_those_that_do() -> None:
    made = plan(60)
    for never in made["steps"][-3:]:
        never["earliest"] = never["latest"] = None

    assert plan_lines(made)[1][-1]["place"] == "kvm-58 … kvm-60 (3 hosts)"


def test_plan_is_printed_in_full_where_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    made = plan(60)
    made["steps"][0]["shares"] = []

    print_plan(made, Detail.VM)

    out = capsys.readouterr().out
    assert len([line for line in out.splitlines() if "kvm-" in line]) == 60
    assert "Warning: Careful." in out


def blocker(event_id: str, **changed: object) -> dict[str, Any]:
    return {
        "kind": "approval-of-any",
        "release": "by time",
        "until": "2026-03-02T12:15:00Z",
        "event_ids": [event_id],
        "hosts": [],
        "sentence": f"Event {event_id}: Not approved yet.",
        **changed,
    }


def test_reasons_that_are_the_same_are_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    found = {
        "maintenance_id": "M1",
        "status_text": "running",
        "blockers": [
            *(blocker(f"E{each}") for each in range(1, 16)),
            blocker("", kind="at-once", sentence="One waits.", event_ids=[]),
        ],
        "verdict": {"sentence": "It continues."},
        "not_done": {"kvm-7": "left the fleet"},
    }

    print_blockers(found)
    assert capsys.readouterr().out.splitlines() == [
        "M1 is running.",
        "- Event E1: Not approved yet. 14 more events wait for the same reason.",
        "- One waits.",
        "Not done: kvm-7 (left the fleet).",
        "It continues.",
    ]
    print_blockers(found, Detail.VM)
    assert len(capsys.readouterr().out.splitlines()) == 19


def test_reasons_that_are_the_same_on_several_hosts_count_these(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = {
        "maintenance_id": "M1",
        "status_text": "running",
        "blockers": [blocker(f"E{each}", hosts=[f"kvm-{each % 4}"]) for each in range(1, 16)],
        "verdict": {"sentence": "It continues."},
        "not_done": {},
    }

    print_blockers(found)

    assert capsys.readouterr().out.splitlines()[1] == (
        "- Event E1: Not approved yet. 14 more events on 4 hosts wait for the same reason."
    )


def test_range_of_hosts_leaves_out_the_one_that_failed() -> None:
    standings = {f"h{number:02}": "succeeded" for number in range(1, 53)} | {"h07": "failed"}

    rows = status_lines(maintenance(standings))[1]

    assert [row["place"] for row in rows] == ["h07", "h01 … h06, h08 … h52 (51 hosts)"]


def test_events_of_a_host_that_are_said_together_count_one_by_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    together = [
        {**blocker("E1", hosts=[host]), "event_ids": [f"{host}-{each}" for each in range(60)]}
        for host in ("h1", "h2", "h3")
    ]
    found = {
        "maintenance_id": "M1",
        "status_text": "running",
        "blockers": together,
        "verdict": {"sentence": "It continues."},
        "not_done": {},
    }

    print_blockers(found)

    assert (
        capsys.readouterr()
        .out.splitlines()[1]
        .endswith(". 120 more events on 2 hosts wait for the same reason.")
    )
