"""How commands fail: an exit code, one line and a hint; never a traceback."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cli.test_broken_connections import answering
from tests.cli.test_help import commands
from tests.cli.test_times import parameters
from typer.testing import CliRunner, Result

from forewarn.cli.app import app
from forewarn.cli.errors import exit_code_of
from forewarn.private_files import write_secret

Run = Callable[..., Result]
FOREWARN = Path(sys.executable).with_name("forewarn")
NOBODY = "00000000-0000-4000-8000-00000000dead"


@pytest.mark.parametrize(
    "arguments",
    [
        ("maintenance", "abort", "", "--yes"),
        ("maintenance", "wait", ""),
        ("host", "show", ""),
        ("event", "cancel", "", "--operation"),
    ],
)
def test_name_that_is_empty_is_a_mistake_of_the_command_line(
    run: Run, arguments: tuple[str, ...]
) -> None:
    result = run(*arguments)

    assert (result.exit_code, result.stderr) == (2, "forewarn: A name or id cannot be empty.\n")


@pytest.mark.parametrize(
    "arguments",
    [
        "vm remove solo",
        "host remove kvm-0",
        "schedule remove nights",
        f"maintenance abort {NOBODY}",
        f"maintenance skip {NOBODY}",
        "fleet apply less.toml --prune",
        "event create --type Reboot --resource solo --started",
        f"event start {NOBODY}",
    ],
)
def test_what_needs_confirmation_is_refused_without_a_terminal(run: Run, arguments: str) -> None:
    Path("less.toml").write_text('[[virtual_machine]]\nname = "other"\n')

    result = run(*arguments.split())

    line, hint = result.stderr.splitlines()
    assert (result.exit_code, result.stdout) == (2, "")
    assert line.endswith("? Cannot ask for confirmation without a terminal.")
    assert hint == "  to confirm, add --yes"
    assert "solo" in run("vm", "list").stdout


@pytest.mark.parametrize(
    ("arguments", "code", "line"),
    [
        ("vm show nobody", 3, "Unknown virtual machine 'nobody'."),
        ("vm remove nobody --yes", 3, "Unknown virtual machine 'nobody'."),
        ("vm restart nobody", 3, "Unknown virtual machine 'nobody'."),
        ("vm add solo", 4, "A virtual machine called 'solo' already exists."),
        ("vm add x --availability-set no", 4, "x belongs to availability-set/no"),
        (f"event show {NOBODY}", 3, f"Unknown event {NOBODY.upper()}."),
        (f"event approve {NOBODY}", 3, f"Unknown event {NOBODY.upper()}."),
        (f"event start {NOBODY} --yes", 3, f"Unknown event {NOBODY.upper()}."),
        ("event create --type Reboot --resource solo --not-before 1m", 4, "the earliest is"),
        ("event complete", 2, "Name one event, or use --all alone."),
        (f"event complete {NOBODY} --all", 2, "Name one event, or use --all alone."),
        (f"event explain {NOBODY}", 3, f"Unknown event {NOBODY.upper()}."),
        (f"event watch --event {NOBODY}", 3, f"Unknown event {NOBODY.upper()}."),
        ("event seen --vm nobody", 3, "Unknown virtual machine 'nobody'."),
        ("event seen --vm solo --at 2025-12-24T18:00:00Z", 4, "records start at 2026-01-05"),
        ("event seen --vm solo --api-version 1", 2, "Unknown api-version '1'; use"),
        ("maintenance status nope", 3, "Unknown maintenance 'nope'."),
        ("maintenance start --type Freeze --scope nope", 3, "'nope'"),
        ("maintenance start --type Freeze", 4, "selects no virtual machine"),
        ("scenario run nope --vm solo", 3, "Unknown scenario 'nope'."),
        ("scenario run redeploy --vm nobody", 3, "'nobody'"),
        ("scenario run nowhere.toml --vm solo", 2, "nowhere.toml cannot be read: No such file"),
        ("scenario status nope", 3, "Unknown scenario run 'nope'."),
        ("scenario stop nope", 3, "Unknown scenario run 'nope'."),
        ("fleet apply nowhere.toml", 2, "nowhere.toml cannot be read: No such file"),
        ("fleet apply .", 2, "cannot be read: Is a directory"),
    ],
)
def test_refusal_has_its_exit_code_one_line_and_a_hint(
    run: Run, arguments: str, code: int, line: str
) -> None:
    result = run(*arguments.split())

    said = result.stderr.splitlines()
    assert (result.exit_code, result.stdout) == (code, "")
    assert said[0].startswith("forewarn: ")
    assert line in said[0]
    assert "vm add x" in arguments or len(said) == 2


@pytest.mark.parametrize(
    "arguments",
    [
        "event create --type Nap --resource solo",
        "event create --type Reboot",
        "event list --status Asleep",
        "event list --limit 0",
        "clock advance soon",
        "event create --type Reboot --resource solo --not-before soon",
        "event seen --vm solo --at soon",
        "vm add",
        "vm list -o xml",
        "nonsense",
        "serve --clock lunar",
    ],
)
def test_wrong_usage_is_two(run: Run, arguments: str) -> None:
    result = run(*arguments.split())

    assert (result.exit_code, result.stdout) == (2, "")
    assert "Error: " in result.stderr


@pytest.mark.parametrize("command", tuple(commands()), ids=" ".join)
def test_unknown_option_is_two_for_every_command(command: tuple[str, ...]) -> None:
    result = CliRunner().invoke(app, [*command, "--no-such-option"])

    assert (result.exit_code, result.stdout) == (2, "")
    assert "No such option: --no-such-option" in result.stderr


@pytest.mark.parametrize(
    ("kind", "status", "code"),
    [
        ("unknown-event", 404, 3),
        ("illegal-transition", 409, 4),
        ("role-too-low", 403, 4),
        ("notice-too-short", 422, 4),
        ("moment", 422, 2),
        ("unauthorized", 401, 1),
        ("store-unavailable", 503, 1),
    ],
)
def test_refusal_of_the_server_has_the_exit_code_of_the_table(
    kind: str, status: int, code: int
) -> None:
    assert exit_code_of(kind, status) == code


def test_conflict_is_four_and_names_the_next_command(run: Run) -> None:
    event_id = json.loads(run("vm", "restart", "solo", "-o", "json").stdout)["event_id"]

    again = run("vm", "restart", "solo")
    cancel = run("event", "complete", event_id)

    assert (again.exit_code, cancel.exit_code) == (4, 4)
    assert again.stderr.endswith("  try: forewarn event list --vm solo\n")
    assert cancel.stderr.endswith(f"  try: forewarn event show {event_id}\n")


@pytest.mark.parametrize(
    ("fleet", "place"),
    [
        ('[[virtual_machine]]\nname = "x"\nzoen = "1"\n', "3: zoen of x: unknown key."),
        ('[[virtual_machine]]\nname = "x"\nzone = 1\n', "3: zone of x: 1 is not text in quotes."),
        ('\n[[virtual_machine]]\nname = "x"\navailability_set = "no"\n', "4: x belongs to"),
        (
            '[[virtual_machine]]\nname = "x"\navailability_set = "web"\nupdate_domain = 9\n',
            "4: x has update domain 9; valid numbers are 0 to 2.",
        ),
        ('[[scale_set]]\nname = "s"\nterminate_notice = "1m"\n', "3: terminate_notice of"),
        ('[[virtual_machine]]\nname = "a b"\n', "2: 'a b' is not a valid name"),
        ('[[virtual_machine]]\nname = "x"\n\nzone = [\n', "4: Not valid TOML"),
        ('a = "x"\nb = = 1\n', "2: Not valid TOML"),
        ('[[vm]]\nname = "x"\n', "1: vm: unknown key; known keys: availability_set"),
        ('[[virtual_machine]]\nname = "x"\nzone = 2026-01-05\n', "3: zone is a date or time"),
    ],
)
def test_fleet_error_names_file_and_line(run: Run, tmp_path: Path, fleet: str, place: str) -> None:
    (tmp_path / "bad.toml").write_text(fleet)

    result = run("fleet", "apply", "bad.toml")

    assert (result.exit_code, result.stdout) == (4, "")
    assert result.stderr.startswith(f"bad.toml:{place}")


def test_nobody_listening_is_six(run: Run) -> None:
    result = run("event", "list", FOREWARN_SERVER="127.0.0.1:9")

    assert result.exit_code == 6
    assert result.stderr == (
        "forewarn: Cannot connect to http://127.0.0.1:9.\n  try: forewarn serve, or --server URL\n"
    )


@pytest.mark.parametrize("url", ["ftp://x", "http://", "http://x:y"])
def test_server_that_is_no_address_is_usage(run: Run, url: str) -> None:
    result = run("event", "list", "--server", url)

    assert result.exit_code == 2, result.output
    assert f" {url.rstrip('/')} " in result.stderr.splitlines()[0]


def test_wrong_token_is_one(run: Run) -> None:
    result = run("event", "list", "--token", "wrong")

    assert result.exit_code == 1
    assert "Unknown token." in result.stderr


def test_token_is_found_beside_the_database_or_in_the_state_directory(
    run: Run, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "state"
    elsewhere.mkdir()
    without = run("vm", "list", FOREWARN_TOKEN=None)
    write_secret(elsewhere / "admin.token", "open-sesame-for-tests")
    in_state_dir = run("vm", "list", FOREWARN_TOKEN=None, FOREWARN_STATE_DIR=str(elsewhere))
    write_secret(tmp_path / "admin.token", "open-sesame-for-tests")
    beside = run("vm", "list", FOREWARN_TOKEN=None)

    assert (without.exit_code, in_state_dir.exit_code, beside.exit_code) == (1, 0, 0)


def test_serve_refuses_a_bad_setting_by_name(run: Run) -> None:
    result = run("serve", "--speed", "0.5")

    assert result.exit_code == 2
    assert result.stderr.startswith("forewarn: Invalid setting speed: ")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("serve", "--speed", "fast"), "'fast' is not a number."),
        (("serve", "--executor", "manul"), "'manul' is not one of 'manual', 'simulated'"),
        (("maintenance", "start", "--type", "Freeze", "--at-once", "0"), "0 is too low"),
        (("maintenance", "start", "--type", "Freeze", "--at-once", "x"), "'x' is not a whole"),
        (("maintenance", "start", "--type", "Freeze", "--window", "Sat"), "not a valid window"),
        (("maintenance", "set", "M", "--blackout", "2026"), "is not a valid blackout"),
        (("schedule", "set", "S", "--every", "fist Tue"), "'fist' is not one of first"),
        (("db", "check", "a.db", "--database", "b.db"), "FILE and --database cannot"),
    ],
    ids=lambda given: given[-1] if isinstance(given, tuple) else "",
)
def test_bad_usage_is_refused_without_a_server_and_in_our_words(
    run: Run, words: tuple[str, ...], said: str
) -> None:
    result = run(*words, FOREWARN_SERVER="http://127.0.0.1:9")

    assert (result.exit_code, result.stdout) == (2, "")
    assert said in result.stderr
    assert "Value error" not in result.stderr


def test_zone_that_only_the_server_may_know_is_left_to_it(run: Run) -> None:
    order = ("maintenance", "start", "--type", "Freeze", "--scope", "web")

    assert run(*order, "--window", "Sat 22:00-23:00 Mars/Base").exit_code == 4


def test_db_upgrade_makes_the_database_and_refuses_one_in_use(run: Run, tmp_path: Path) -> None:
    made = run("db", "upgrade", "--database", f"sqlite:///{tmp_path}/new.db")
    in_use = run("db", "upgrade")

    assert (made.exit_code, made.stdout) == (0, f"{tmp_path}/new.db is up to date\n")
    assert (tmp_path / "new.db").exists()
    assert (in_use.exit_code, in_use.stdout) == (1, "")
    assert in_use.stderr.startswith("forewarn: forewarn.db is in use")


def test_command_in_a_pipe_is_plain_and_without_traceback(
    run: Run, server: str, tmp_path: Path
) -> None:
    run("vm", "list")
    environment = {
        "PATH": os.defpath,
        "FOREWARN_SERVER": server,
        "FOREWARN_TOKEN": "open-sesame-for-tests",
    }

    listed, refused = (
        subprocess.run(
            [FOREWARN, *arguments],
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        for arguments in (("vm", "list"), ("vm", "show", "nobody"))
    )

    assert (listed.returncode, listed.stderr) == (0, "")
    assert "\x1b" not in listed.stdout
    assert (refused.returncode, refused.stdout) == (3, "")
    assert "Traceback" not in refused.stderr


NEEDED = {
    "--at-once": "1",
    "--every": "Tue",
    "--label": "team=shop",
    "--not-before": "1h",
    "--type": "Reboot",
    "DURATION": "15m",
    "FILE": "fleet.toml",
    "KIND": "reset",
    "VM": "solo",
    "NAME|FILE.toml": "live-migration",
    "OUTCOME": "done",
}
CHANGES: dict[tuple[str, ...], tuple[str, ...]] = {
    ("event", "complete"): ("nobody",),
    ("host", "set"): ("--label", "rack=a"),
    ("maintenance", "set"): ("--soak", "1m"),
    ("schedule", "set"): ("--soak", "1m"),
    ("scope", "set"): ("--notice", "20m"),
    ("task", "settle"): ("nobody",),
    ("token", "create"): ("nobody", "--role", "viewer"),
    ("vm", "move"): ("--host", "kvm-0"),
    ("vm", "set"): ("--zone", "1"),
}
"""What these need, although no option of theirs is required by itself."""
ELSEWHERE = {("doctor",), ("fleet", "import"), ("relay",)}
"""These have findings, or go on, whatever the server answers; or ask others first."""


def asking_commands() -> dict[tuple[str, ...], list[str]]:
    """Return the commands that ask a server, with what they need to do that."""
    lines: dict[tuple[str, ...], list[str]] = {}
    asking = {path for path, each in parameters() if "--server" in each.opts} - ELSEWHERE
    for path, parameter in parameters():
        if path not in asking:
            continue
        line = lines.setdefault(path, [*path, *CHANGES.get(path, ())])
        (name, *_) = parameter.opts
        if parameter.required:
            known = NEEDED.get(name, NEEDED.get(parameter.metavar, "nobody"))
            line += [name, known] if name.startswith("--") else [known]
        elif name == "--yes":
            line.append(name)
    return lines


def refusal(status: int) -> bytes:
    body = b'{"detail": "It is refused."}'
    return b"HTTP/1.1 %d Refused\r\nContent-Length: %d\r\n\r\n%s" % (status, len(body), body)


ASKING = asking_commands()
TABLE = {400: 1, 401: 1, 403: 4, 404: 3, 409: 4, 421: 4, 422: 4, 429: 1, 500: 1, 503: 1}


@pytest.mark.parametrize("command", tuple(ASKING), ids=" ".join)
def test_every_command_ends_by_the_table(
    command: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("fleet.toml").write_text("")
    codes = {}

    with answering(*map(refusal, TABLE)) as (server, _):
        variables = {"FOREWARN_SERVER": server, "FOREWARN_TOKEN": "x"}
        for status in TABLE:
            result = CliRunner().invoke(app, ASKING[command], env=variables)
            codes[status] = result.exit_code
            assert result.stderr.startswith(("forewarn: ", "fleet.toml: ")), result.output
    gone = CliRunner().invoke(app, ASKING[command], env=variables)

    assert codes == TABLE
    assert gone.exit_code == 6
