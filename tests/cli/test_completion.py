"""Completion, in the shells themselves."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from tests.http.control.tasks import put_impact, put_owner
from tests.needs import find_program
from typer.testing import CliRunner, Result

from forewarn.cli.app import app
from forewarn.domain.task import TaskState
from forewarn.ports.store import Store

Run = Callable[..., Result]
FOREWARN = Path(sys.executable).with_name("forewarn")
FIRST = "00000000-0000-4000-8000-000000000003"
TIMEOUT = 45
SHELLS = ("bash", "zsh", "fish")

BASH = """
source <({forewarn} completion bash)
COMP_WORDS=({words}) COMP_CWORD={last}
$(complete -p forewarn | sed 's/.*-F \\([^ ]*\\) .*/\\1/') forewarn
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
ZSH = """
compdef() {{ :; }}
_arguments() {{ print -r -- "$@"; }}
source <({forewarn} completion zsh)
words=({words}) CURRENT={last}
(( CURRENT += 1 ))
_forewarn_completion
"""
FISH = """
{forewarn} completion fish | source
complete -C '{line}'
"""


def script_of(shell: str) -> str:
    result = CliRunner().invoke(app, ["completion", shell])
    assert result.exit_code == 0
    return result.stdout


def complete(line: str, environment: Mapping[str, str]) -> list[str]:
    """Return what bash offers for *line*, in which the last word is not finished."""
    words = line.split(" ")
    quoted = " ".join(f"'{word}'" for word in words)
    script = BASH.format(forewarn=FOREWARN, words=quoted, last=len(words) - 1)
    path = f"{FOREWARN.parent}{os.pathsep}{os.defpath}"
    said = subprocess.run(
        [find_program("bash"), "--norc", "-c", script],
        env={**environment, "PATH": path},
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=True,
    )
    assert said.stderr == ""
    return [word for word in said.stdout.splitlines() if word]


HOSTILE = r"\$(id)`id`'\"" + "\x1b]0;\x07\x9b\x7f\n"


class Impostor(BaseHTTPRequestHandler):
    """Somebody who listens where the server would."""

    def do_GET(self) -> None:
        names = ("web-0", HOSTILE, f"web{HOSTILE}")
        vms = [{"name": name, "scope_id": f"set/web{HOSTILE}"} for name in names]
        body = json.dumps({"virtual_machines": vms}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish", "powershell"])
def test_shell_gets_nothing_to_evaluate(shell: str) -> None:
    words = "forewarn vm show "
    with ThreadingHTTPServer(("127.0.0.1", 0), Impostor) as impostor:
        thread = threading.Thread(target=impostor.serve_forever)
        thread.start()
        done = CliRunner().invoke(
            app,
            [],
            prog_name="forewarn",
            env={
                "FOREWARN_SERVER": f"http://127.0.0.1:{impostor.server_port}",
                "_FOREWARN_COMPLETE": f"complete_{shell}",
                "COMP_WORDS": words,
                "COMP_CWORD": "3",
                "_TYPER_COMPLETE_ARGS": words,
                "_TYPER_COMPLETE_FISH_ACTION": "get-args",
                "_TYPER_COMPLETE_WORD_TO_COMPLETE": "",
            },
        )
        impostor.shutdown()
        thread.join()

    assert done.stdout.count("web-0") == 1
    assert "id" not in done.stdout.replace("?id?", "")
    assert done.stdout.strip().replace("\t", "").isprintable()  # fish separates by tabs


@pytest.mark.parametrize("shell", SHELLS)
def test_script_is_one_its_shell_understands(shell: str, tmp_path: Path) -> None:
    (tmp_path / "script").write_text(script_of(shell))
    subprocess.run([find_program(shell), "-n", tmp_path / "script"], timeout=TIMEOUT, check=True)


def test_commands_and_verbs_are_completed(environment: dict[str, str]) -> None:
    assert complete("forewarn mai", environment) == ["maintenance"]
    assert complete("forewarn event po", environment) == ["postpone"]
    assert complete("forewarn event create --not", environment) == ["--not-before"]


def test_rare_commands_are_completed_too(environment: dict[str, str]) -> None:
    assert complete("forewarn co", environment) == ["completion", "conformance", "config"]


def test_names_of_the_server_are_completed(run: Run, environment: dict[str, str]) -> None:
    run("event", "create", "--type", "Reboot", "--resource", "solo")
    begun = run("maintenance", "start", "--type", "Freeze", "--scope", "web")
    assert begun.exit_code == 0

    assert complete("forewarn vm show we", environment) == ["web-0", "web-1"]
    assert complete("forewarn host show kv", environment) == ["kvm-0", "kvm-1"]
    assert complete("forewarn event create --resource so", environment) == ["solo"]
    assert complete("forewarn event show 0", environment) == [FIRST]
    assert complete("forewarn maintenance status 0", environment) == [f"{FIRST[:-1]}4"]


def test_tasks_hosts_and_replicas_are_completed(
    run: Run, environment: dict[str, str], store: Store
) -> None:
    run("event", "create", "--type", "Reboot", "--resource", "solo", "--started", "--yes")
    put_owner(store)
    put_impact(store, FIRST, "solo", TaskState.UNKNOWN)
    put_impact(store, FIRST, "web-0", TaskState.BEGUN)

    assert complete("forewarn ta", environment) == ["task"]
    assert complete("forewarn rep", environment) == ["replica"]
    assert complete("forewarn replica forget k", environment) == ["kvm-1"]
    assert complete("forewarn task list --owner d", environment) == ["db-9"]
    assert complete("forewarn task list --host kv", environment) == ["kvm-0", "kvm-1"]
    assert complete("forewarn task settle 0", environment) == [f"{FIRST}/solo"]


def test_server_on_the_line_is_the_one_that_is_asked(run: Run, environment: dict[str, str]) -> None:
    assert run("vm", "list").exit_code == 0
    server = environment["FOREWARN_SERVER"]
    elsewhere = {**environment, "FOREWARN_SERVER": "127.0.0.1:1"}

    line = f"forewarn vm show --server http://{server} so"
    assert complete(line, elsewhere) == ["solo"]


@pytest.mark.parametrize(
    "trouble",
    [
        {"FOREWARN_SERVER": "127.0.0.1:1"},
        {"FOREWARN_TOKEN": "wrong"},
        {"FOREWARN_SERVER": "::"},
    ],
)
def test_without_an_answer_nothing_is_offered_or_said(
    environment: dict[str, str], trouble: dict[str, str]
) -> None:
    assert complete("forewarn vm show we", {**environment, **trouble}) == []


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_offer_the_same(shell: str, run: Run, environment: dict[str, str]) -> None:
    assert run("vm", "list").exit_code == 0
    template = {"zsh": ZSH, "fish": FISH}[shell]
    line = "forewarn vm show we"
    script = template.format(forewarn=FOREWARN, line=line, words=line, last=3)
    path = f"{FOREWARN.parent}{os.pathsep}{os.defpath}"
    said = subprocess.run(
        [find_program(shell), "-c", script],
        env={**environment, "PATH": path, "HOME": str(Path.cwd())},
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )

    assert "web-0" in said.stdout, said
    assert "web-1" in said.stdout
    assert "solo" not in said.stdout
