"""What `fleet export` writes, `fleet apply` makes again, on a server that knows nothing of it."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from forewarn.cli.app import app

Run = Callable[..., Result]

GROUPS = """
[[scale_set]]
name = "batch"
update_domains = 4
terminate_notice = "7m"
approval = "all"

[[scale_set]]
name = "empty"

[[virtual_machine]]
name = "batch-1"
scale_set = "batch"
placement_group = "b"

[[virtual_machine]]
name = "batch-0"
scale_set = "batch"
placement_group = "a"
update_domain = 3

[[virtual_machine]]
name = "batch-2"
scale_set = "batch"
"""
TEXTS = """
[[host]]
name = "Kvm-1"
labels = { "rack row" = "R\\u0022 3\\n", "a.b" = "c = d # no comment" }

[[host]]
name = "spare"

[[virtual_machine]]
name = "Solo"
host = "Kvm-1"
addresses = ["10.0.0.1", "fd00::1"]
approval = "leader"
postpone_until = "1h30m"
auto_approve_user = true
tags = { "" = "", "\\u00e9\\U0001F600" = "\\u007f\\t\\\\", team = "\'shop\'" }
"""
SERVICES = """
[[cloud_service]]
name = "shop"
fault_domains = 3

[[availability_set]]
name = "Web"
update_domains = 20
postpone_until = "90s"

[[virtual_machine]]
name = "FrontEnd_IN_1"
cloud_service = "shop"
role = "FrontEnd"

[[virtual_machine]]
name = "web-0"
availability_set = "Web"
fault_domain = 1

[[virtual_machine]]
name = "FrontEnd_IN_0"
cloud_service = "shop"
zone = "2"
location = "west"
resource_group = "rg"
subscription_id = "5a"
profile = { vm_size = "Standard_D2s_v5", mac_address = "00:0d:3a:12:34:56", subnet = "10.0.0.0/24" }
vm_id = "5F1B6D0E-0000-4000-8000-00000000000A"
"""


@pytest.mark.parametrize("fleet", [GROUPS, TEXTS, SERVICES])
@pytest.mark.parametrize("output", [(), ("-o", "json")])
def test_fleet_that_is_exported_and_applied_elsewhere_is_the_same(
    empty_run: Run, tmp_path: Path, fleet: str, output: tuple[str, ...]
) -> None:
    def apply(text: str, *flags: str) -> str:
        (tmp_path / "fleet.toml").write_text(text, encoding="utf-8")
        done = empty_run("fleet", "apply", "fleet.toml", *flags)
        assert done.exit_code == 0, done.output
        return done.stdout

    apply(fleet)
    exported = empty_run("fleet", "export").stdout
    before = empty_run("fleet", "export", *output).stdout

    assert apply(exported) == "0 added, 0 changed, 0 removed\n"
    for vm in json.loads(empty_run("fleet", "export", "-o", "json").stdout)["virtual_machine"]:
        assert empty_run("vm", "remove", vm["name"], "--yes").exit_code == 0
    apply("", "--prune", "--yes")
    assert empty_run("fleet", "export").stdout == ""
    apply(exported)

    assert empty_run("fleet", "export", *output).stdout == before


MISTAKES = """\
[[availability_set]]
name = "web"
update_domain = 3

[[virtual_machine]]
host = "kvm-1"

[[virtual_machine]]
name = "a"
availability_set = "wbe"
addresses = ["10.0.0.999"]

[[virtual_machine]]
name = "A"
availability_set = "web"
update_domain = 9
"""

TOLD = (
    "fleet.toml:3: update_domain of web: unknown key.\n"
    "fleet.toml:5: name of virtual_machine 1: it is required.\n"
    "fleet.toml:10: a belongs to availability-set/wbe, which is not declared.\n"
    "fleet.toml:11: The address '10.0.0.999' of a is not a valid IP address.\n"
    "fleet.toml:14: More than one virtual machine is called 'a'; names are not case-sensitive.\n"
    "fleet.toml:16: A has update domain 9; valid numbers are 0 to 4.\n"
)


def test_every_mistake_is_told_with_its_line(empty_run: Run, tmp_path: Path) -> None:
    (tmp_path / "fleet.toml").write_text(MISTAKES, encoding="utf-8")

    refused = empty_run("fleet", "apply", "fleet.toml")

    assert (refused.exit_code, refused.stderr) == (4, TOLD)
    assert empty_run("fleet", "export").stdout == ""


def test_server_tells_every_mistake_of_its_fleet_with_its_line(
    empty_run: Run, tmp_path: Path
) -> None:
    (tmp_path / "fleet.toml").write_text(MISTAKES, encoding="utf-8")
    anywhere = ("--metadata", "127.0.0.1:0", "--control", "127.0.0.1:0")

    refused = empty_run(
        "serve", "--fleet", "fleet.toml", "--database", "sqlite:///other.db", *anywhere
    )

    assert (refused.exit_code, refused.stderr) == (1, f"forewarn: {TOLD}")
    assert not (tmp_path / "other.db").exists()


def test_dates_are_told_with_their_lines(empty_run: Run, tmp_path: Path) -> None:
    text = '[[virtual_machine]]\nname = "a"\nzone = 2026-01-05\n[[host]]\nname = 08:15:00\n'
    (tmp_path / "fleet.toml").write_text(text, encoding="utf-8")

    refused = empty_run("fleet", "apply", "fleet.toml")

    assert refused.exit_code == 4
    assert refused.stderr == (
        "fleet.toml:3: zone is a date or time; write text in quotes.\n"
        "fleet.toml:5: name is a date or time; write text in quotes.\n"
    )


@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_fleet_is_read_from_standard_input(environment: dict[str, str], mark: str) -> None:
    def apply(text: str) -> Result:
        return CliRunner().invoke(app, ("fleet", "apply", "-"), input=text, env=environment)

    assert apply(f'{mark}[[virtual_machine]]\r\nname = "a"\r\n').stdout.startswith("+ a\n1 added")
    assert apply('[[virtual_machine]]\nname = "b"\ncolour = 1\n').stderr == (
        "standard input:3: colour of b: unknown key.\n"
    )


def test_file_of_another_encoding_is_refused(empty_run: Run, tmp_path: Path) -> None:
    (tmp_path / "fleet.toml").write_text(GROUPS, encoding="utf-16")

    refused = empty_run("fleet", "apply", "fleet.toml")

    assert (refused.exit_code, refused.stderr.splitlines()[0]) == (
        2,
        "forewarn: fleet.toml is not UTF-8 text.",
    )


def test_pruning_needs_a_yes_where_nobody_can_be_asked(run: Run, tmp_path: Path) -> None:
    (tmp_path / "less.toml").write_text('[[virtual_machine]]\nname = "solo"\n')
    pruning = ("fleet", "apply", "less.toml", "--prune", "--allow-removals", "2")

    refused = run(*pruning)

    assert refused.exit_code == 2
    assert "to confirm, add --yes" in refused.stderr
    assert run(*pruning, "--yes").exit_code == 0


def test_empty_file_never_empties_a_fleet(run: Run, tmp_path: Path) -> None:
    (tmp_path / "empty.toml").write_text("")

    refused = run("fleet", "apply", "empty.toml", "--prune", "--yes", "--allow-removals", "99")

    assert refused.exit_code == 4
    assert "empty.toml: The fleet declares no virtual machine" in refused.stderr
    assert "web-0" in run("vm", "list").stdout
