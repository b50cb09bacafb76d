"""Where the programs for Proxmox VE send the token, and where not."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.contrib.conftest import CONTRIB, FAST, Program
from tests.contrib.proxmox.api import TOKEN, Cluster
from tests.contrib.proxmox.conftest import ProgramMaker
from tests.contrib.stand_in import Reply
from tests.e2e.test_tls import Pair

EVENT = {"EVENT_TYPE": "Terminate", "EVENT_VM": "web-0"}


def program_at(url: str, *arguments: str) -> Program:
    return Program(
        path=CONTRIB / "proxmox" / "pve_impact.py", arguments=("--url", url, *arguments, *FAST)
    )


def test_certificate_is_verified(cluster: Cluster, token_file: Path, pair: Pair) -> None:
    with cluster.api.listening(pair):
        impact = program_at(cluster.api.url, "--token-file", str(token_file))
        stranger = impact.run(**EVENT)
        seen = len(cluster.api.asked)
        trusted = impact.run("--ca-file", str(pair.certificate), **EVENT)

    assert (stranger.status, seen) == (1, 0)
    assert stranger.last_line.startswith('cannot verify the certificate of "127.0.0.1:')
    assert stranger.last_line.endswith("; name its authority with --ca-file")
    assert trusted.last_line == "web-0 is stopped"


def test_token_is_taken_from_the_environment_without_a_file(cluster: Cluster) -> None:
    impact = program_at(cluster.api.url)

    assert impact.run(PVE_API_TOKEN=TOKEN, **EVENT).last_line == "web-0 is stopped"
    assert impact.run(**EVENT).last_line == (
        "$PVE_API_TOKEN has no token of the form USER@REALM!TOKENID=SECRET"
    )


def test_token_is_not_sent_in_clear_text_to_another_machine(token_file: Path) -> None:
    impact = program_at("http://pve-1.example.org:8006", "--token-file", str(token_file))

    assert impact.run(**EVENT).last_line == (
        '"http://pve-1.example.org:8006" would send the token unencrypted; use https'
    )


def test_token_that_everybody_can_read_is_refused(
    cluster: Cluster, program: ProgramMaker, token_file: Path
) -> None:
    token_file.chmod(0o644)

    ended = program("pve_impact.py").run(**EVENT)

    assert (ended.status, cluster.api.asked) == (1, [])
    assert ended.last_line == f'all users can read "{token_file}"; run: chmod o= {token_file}'


def test_token_does_not_follow_a_redirect(cluster: Cluster, program: ProgramMaker) -> None:
    elsewhere = {"Location": f"{cluster.api.url}/elsewhere"}
    cluster.api.fail("GET /cluster", Reply(307, None, elsewhere))

    assert program("pve_impact.py").run(**EVENT).status == 1
    assert {each.path for each in cluster.api.asked} == {"/cluster/resources"}


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--url", "pve-1:8006"), '"pve-1:8006" is not a URL such as https://pve-1:8006'),
        (("--token-file", "none"), 'cannot read the token file "none": No such file or directory'),
        (
            ("--ca-file", "none"),
            'cannot use the CA file "none": [Errno 2] No such file or directory',
        ),
        (("--url", "https://127.0.0.1:1"), 'no answer from "127.0.0.1:1": [Errno 111]'),
    ],
)
def test_bad_option_is_named(
    program: ProgramMaker, arguments: tuple[str, ...], reason: str
) -> None:
    ended = program("pve_impact.py").run(*arguments, **EVENT)

    assert ended.status == 1
    assert ended.last_line.startswith(reason)


@pytest.mark.parametrize("name", ["pve_impact.py", "pve_inventory.py", "pve_node_work.py"])
def test_help_is_short_and_needs_nothing(program: ProgramMaker, name: str) -> None:
    ended = replace(program(name), arguments=()).run("--help")

    assert ended.status == 0
    assert "--token-file" in ended.printed
    assert "--ca-file" in ended.printed


def test_secret_is_in_no_output(cluster: Cluster, program: ProgramMaker) -> None:
    cluster.api.fail("POST", Reply(500))

    ended = program("pve_impact.py").run(**EVENT)

    assert TOKEN.partition("=")[2] not in ended.printed + ended.said
