"""What each command prints: tables for people, JSON for programs."""

import json
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest
from typer.testing import Result

Run = Callable[..., Result]

# The fleet took 1 and 2 for its vm_ids.
FIRST = "00000000-0000-4000-8000-000000000003"
SECOND = "00000000-0000-4000-8000-000000000004"


def shown(result: Result) -> str:
    assert result.exit_code == 0, result.output
    return result.stdout


def table(text: str) -> str:
    return dedent(text).lstrip("\n")


def test_fleet_apply_counts(run: Run, tmp_path: Path) -> None:
    (tmp_path / "less.toml").write_text('[[virtual_machine]]\nname = "solo"\n')

    assert shown(run("fleet", "apply", "fleet.toml")) == "0 added, 0 changed, 0 removed\n"
    pruning = ("--prune", "--yes", "--allow-removals", "2")
    pruned = run("fleet", "apply", "less.toml", *pruning, "-o", "json")
    change = json.loads(shown(pruned))
    assert (change["changed"], change["removed"]) == (["solo"], ["web-0", "web-1"])
    (solo,) = [each for each in change["differences"] if each["name"] == "solo"]
    assert solo["fields"] == [{"field": "tags.team", "before": "shop", "after": None}]


@pytest.mark.parametrize("command", [("fleet", "show"), ("vm", "list")])
def test_fleet_is_a_table(run: Run, command: tuple[str, str]) -> None:
    assert shown(run(*command)) == table("""
        NAME   SCOPE                 UPDATE DOMAIN  FAULT DOMAIN  HOST   ADDRESSES  LAST POLL
        web-0  availability-set/web  0              0             kvm-0  10.0.0.10  never
        web-1  availability-set/web  1              1             kvm-1             never
        solo   virtual-machine/solo  0              0                               never
        """)


def test_fleet_as_json_is_the_fleet_file(run: Run) -> None:
    fleet = json.loads(shown(run("fleet", "show", "-o", "json")))

    assert [vm["name"] for vm in fleet["virtual_machine"]] == ["web-0", "web-1", "solo"]
    assert fleet["availability_set"][0]["postpone_until"] == "1h"


def test_virtual_machine_is_shown(run: Run) -> None:
    assert shown(run("vm", "show", "SOLO")) == table("""
        name:           solo
        scope:          virtual-machine/solo
        update domain:  0
        fault domain:   0
        vm_id:          00000000-0000-4000-8000-000000000002
        tags:           team=shop
        last poll:      never
        """)


def test_virtual_machine_is_added_and_removed(run: Run) -> None:
    added = run("vm", "add", "web-2", "--availability-set", "web", "--address", "10.0.0.12")

    assert shown(added) == table("""
        NAME   SCOPE                 UPDATE DOMAIN  FAULT DOMAIN  HOST  ADDRESSES  LAST POLL
        web-2  availability-set/web  2              0                   10.0.0.12  never
        """)
    assert shown(run("vm", "remove", "web-2", "--yes")) == "removed web-2\n"


@pytest.mark.parametrize(
    ("verb", "event_type", "not_before"),
    [("restart", "Reboot  ", "08:15:00"), ("redeploy", "Redeploy", "08:10:00")],
)
def test_user_operation_shows_its_event(
    run: Run, verb: str, event_type: str, not_before: str
) -> None:
    event = event_type.strip()
    width = len(event)

    assert shown(run("vm", verb, "solo")) == (
        f"EVENT ID                              {'TYPE':<{width}}  STATUS     SOURCE  "
        "NOT BEFORE            RESOURCES\n"
        f"{FIRST}  {event}  Scheduled  User    2026-01-05 {not_before}Z  solo\n"
    )


def test_events_are_created_and_listed(run: Run) -> None:
    resources = ("--resource", "web-0", "--resource", "solo")
    created = run("event", "create", "--type", "reboot", *resources, "--not-before", "20m")

    expected = table(f"""
        EVENT ID                              TYPE    STATUS     SOURCE    NOT BEFORE            RESOURCES
        {FIRST}  Reboot  Scheduled  Platform  2026-01-05 08:20:00Z  web-0
        {SECOND}  Reboot  Scheduled  Platform  2026-01-05 08:20:00Z  solo
        """)  # noqa: E501
    assert shown(created) == expected
    assert shown(run("event", "list")) == expected
    assert SECOND not in shown(run("event", "list", "--vm", "web-0"))
    assert FIRST not in shown(run("event", "list", "--status", "started"))
    assert len(json.loads(shown(run("event", "list", "--limit", "1", "-o", "json")))["events"]) == 1


def test_created_event_has_what_the_flags_say(run: Run) -> None:
    flags = ("--duration", "9", "--description", "Übung", "--not-before", "2026-01-05T09:00:00Z")
    answer = run("event", "create", "--type", "Freeze", "--resource", "solo", *flags, "-o", "json")

    (event,) = json.loads(shown(answer))["events"]
    assert (event["event_type"], event["duration_in_seconds"]) == ("Freeze", 9)
    assert (event["description"], event["not_before"]) == ("Übung", "2026-01-05T09:00:00Z")


def test_event_is_shown_with_its_life(run: Run) -> None:
    run("vm", "restart", "solo")
    run("clock", "advance", "1m")
    run("event", "approve", FIRST)
    run("event", "start", FIRST, "--yes")
    run("event", "complete", FIRST, "--failed", "--reason", "no boot")

    assert shown(run("event", "show", FIRST)) == table(f"""
        event id:       {FIRST}
        type:           Reboot
        status:         Completed
        source:         User
        scope:          virtual-machine/solo
        update domain:  0
        resources:      solo
        description:    Virtual machine is going to be restarted as requested by authorized user.
        created:        2026-01-05 08:00:00Z
        not before:     2026-01-05 08:15:00Z
        approved by:    alice
        started:        2026-01-05 08:01:00Z
        ended:          2026-01-05 08:01:00Z
        outcome:        failed
        reason:         no boot

        AT                    WHAT       WHO    WHERE      DETAIL
        2026-01-05 08:00:00Z  scheduled  alice  127.0.0.1
        2026-01-05 08:01:00Z  approved   alice  127.0.0.1
        2026-01-05 08:01:00Z  started    alice  127.0.0.1
        2026-01-05 08:01:00Z  completed  alice  127.0.0.1  no boot
        """)


def test_history_lists_what_has_ended(run: Run) -> None:
    run("event", "create", "--type", "Reboot", "--resource", "web-0")
    run("event", "create", "--type", "Reboot", "--resource", "web-1", "--started", "--yes")
    run("event", "cancel", FIRST, "--reason", "not today")
    run("event", "complete", "--all")

    assert shown(run("event", "history")) == table(f"""
        EVENT ID                              TYPE    STATUS     OUTCOME    ENDED                 RESOURCES  REASON
        {FIRST}  Reboot  Canceled              2026-01-05 08:00:00Z  web-0      not today
        {SECOND}  Reboot  Completed  succeeded  2026-01-05 08:00:00Z  web-1
        """)  # noqa: E501
    assert len(shown(run("event", "list")).splitlines()) == 1
    narrow = ("--scope", "web", "--type", "reboot", "--since", "08:00", "--until", "0m ago")
    assert SECOND not in shown(run("event", "history", *narrow))
    assert SECOND in shown(run("event", "history", *narrow[:-2], "--vm", "web-1"))


def test_event_is_explained_in_sentences(run: Run) -> None:
    run("event", "create", "--type", "Reboot", "--resource", "web-0")

    assert shown(run("event", "explain", FIRST)) == table(f"""
        {FIRST} is Scheduled.
        - Not approved yet; one approval is enough (web-0).
          The event starts at 2026-01-05 08:15:00 GMT at the latest.
          The event can be postponed to 2026-01-05 09:15:00 GMT at the latest.
        """)
    explained = json.loads(shown(run("event", "explain", FIRST, "-o", "json")))
    assert [reason["kind"] for reason in explained["reasons"]] == [
        "approval-of-any",
        "not-before",
        "postponable",
    ]


def test_how_an_event_ended_is_explained(run: Run) -> None:
    run("event", "create", "--type", "Reboot", "--resource", "solo")
    run("event", "cancel", FIRST, "--reason", "not today")

    assert shown(run("event", "explain", FIRST)) == table(f"""
        {FIRST} is Canceled.
          The event was canceled at 2026-01-05 08:00:00 GMT: not today.
        """)


def test_seen_prints_the_document_and_nothing_else(run: Run) -> None:
    run("clock", "advance", "5m")
    run("vm", "restart", "solo")
    run("clock", "advance", "5m")

    before = run("event", "seen", "--vm", "solo", "--at", "08:04")
    after = run("event", "seen", "--vm", "solo", "--at", "5m ago", "--api-version", "2017-03-01")

    assert shown(before) == '{"DocumentIncarnation":0,"Events":[]}'
    assert shown(after) == (
        f'{{"DocumentIncarnation":1,"Events":[{{"EventId":"{FIRST}","EventStatus":"Scheduled",'
        '"EventType":"Reboot","ResourceType":"VirtualMachine","Resources":["solo"],'
        '"NotBefore":"2026-01-05T08:20:00Z"}]}'
    )


def test_event_is_postponed(run: Run) -> None:
    run("event", "create", "--type", "Reboot", "--resource", "web-0")

    postponed = run("event", "postpone", FIRST, "--not-before", "1h", "-o", "json")

    assert json.loads(shown(postponed))["not_before"] == "2026-01-05T09:00:00Z"


def test_maintenance_is_started_listed_and_followed(run: Run) -> None:
    started = run("maintenance", "start", "--type", "Freeze", "--scope", "web", "--duration", "9")

    expected = table(f"""
        maintenance:       {FIRST}
        type:              Freeze
        status:            running
        description:       Host server is undergoing maintenance.
        virtual machines:  2
        duration:          9s
        started:           2026-01-05 08:00:00Z
        progress:          1 scope waiting

        SCOPE                 STATE    VMS  APPROVED  WAITS FOR
        availability-set/web  waiting  2
        """)
    assert shown(started) == expected
    assert shown(run("maintenance", "status", FIRST)) == expected
    assert shown(run("maintenance", "list")) == table(f"""
        MAINTENANCE                           TYPE    STATUS   TARGETS             PROGRESS
        {FIRST}  Freeze  running  2 virtual machines  1 scope waiting
        """)


def test_clock_is_shown_and_advanced(run: Run) -> None:
    assert shown(run("clock", "show")) == "now:    2026-01-05 08:00:00Z\nclock:  virtual\n"
    assert json.loads(shown(run("clock", "advance", "1h30m", "-o", "json"))) == {
        "kind": "virtual",
        "now": "2026-01-05T09:30:00Z",
        "jumps": [],
    }


def test_dry_run_of_a_fleet_names_what_would_change(run: Run, tmp_path: Path) -> None:
    (tmp_path / "less.toml").write_text(
        '[[availability_set]]\nname = "web"\nupdate_domains = 5\n'
        '[[virtual_machine]]\nname = "solo"\n[[virtual_machine]]\nname = "new"\n'
    )

    assert shown(run("fleet", "apply", "less.toml", "--prune", "--dry-run")) == (
        "~ availability set web: update_domains 3 → 5, postpone_until 1h → 0s\n"
        "+ new\n~ solo: tags.team shop → none\n- web-0\n- web-1\n- host kvm-0\n- host kvm-1\n"
        "1 added, 1 changed, 2 removed; 1 availability set changed, 2 hosts removed\n"
        "Applying this needs --allow-removals 2.\n"
        "Dry run: nothing was changed.\n"
    )


def test_applied_fleet_tells_what_it_skipped(run: Run, tmp_path: Path) -> None:
    run("vm", "restart", "solo")
    (tmp_path / "moved.toml").write_text(
        '[[virtual_machine]]\nname = "solo"\nhost = "kvm-1"\n[[virtual_machine]]\nname = "new"\n'
    )

    refused = run("fleet", "apply", "moved.toml")

    assert (refused.exit_code, "moved.toml:2: solo has events in flight" in refused.stderr) == (
        4,
        True,
    )
    assert refused.stderr.endswith("vm solo, or add --skip-busy to leave it unchanged\n")
    lines = shown(run("fleet", "apply", "moved.toml", "--skip-busy")).splitlines()
    assert lines[0] == "+ new"
    assert lines[1].startswith("! skipped: solo has events in flight (0000")
    assert lines[2] == "1 added, 0 changed, 0 removed, 1 skipped"


def test_applied_fleet_tells_once_which_host_is_closed_to_those_it_skipped(
    run: Run, tmp_path: Path
) -> None:
    run("host", "close", "kvm-1")
    (tmp_path / "moved.toml").write_text(
        '[[virtual_machine]]\nname = "solo"\nhost = "kvm-1"\n'
        '[[virtual_machine]]\nname = "new"\nhost = "kvm-1"\n'
    )

    refused = run("fleet", "apply", "moved.toml")

    assert (refused.exit_code, "moved.toml:2: kvm-1 has been closed" in refused.stderr) == (4, True)
    assert refused.stderr.endswith(
        "try: forewarn host open kvm-1, or add --skip-busy to leave it unchanged\n"
    )
    lines = shown(run("fleet", "apply", "moved.toml", "--skip-busy")).splitlines()
    assert lines[0].startswith("! skipped: kvm-1 has been closed to new virtual machines")
    assert lines[1:] == ["0 added, 0 changed, 0 removed, 2 skipped"]


def test_applied_fleet_tells_each_field(run: Run, tmp_path: Path) -> None:
    (tmp_path / "more.toml").write_text(
        '[[scale_set]]\nname = "empty"\n[[host]]\nname = "kvm-1"\nlabels = { rack = "row 3" }\n'
        '[[virtual_machine]]\nname = "solo"\nhost = "kvm-1"\napproval = "all"\n'
        'addresses = ["10.0.0.8", "10.0.0.9"]\ntags = { team = "shop" }\n'
    )

    assert shown(run("fleet", "apply", "more.toml")) == (
        "+ scale set empty\n"
        "~ solo: approval any → all, host none → kvm-1, addresses none → 10.0.0.8,10.0.0.9\n"
        '~ host kvm-1: labels.rack none → "row 3"\n'
        "0 added, 1 changed, 0 removed; 1 scale set added, 1 host changed\n"
    )


def test_exported_fleet_applied_again_changes_nothing(run: Run, tmp_path: Path) -> None:
    (tmp_path / "exported.toml").write_text(shown(run("fleet", "export")))

    applied = run("fleet", "apply", "exported.toml", "--prune", "--yes")

    assert shown(applied) == "0 added, 0 changed, 0 removed\n"
