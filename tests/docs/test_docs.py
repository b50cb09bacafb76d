"""What the documentation claims is true today."""

import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from forewarn.cli.app import app
from forewarn.cli.scenario import describe_step
from forewarn.desk.refusals import CALLERS_PER_MINUTE, LINES_OF_ALL, LINES_PER_MINUTE
from forewarn.domain.blockers import BlockerKind, VerdictKind
from forewarn.domain.fault import FAULTS
from forewarn.domain.roles import MAY
from forewarn.domain.scenario import Scenario
from forewarn.domain.why import HOLDING, ReasonKind
from forewarn.emulator.builtin import built_in_scenarios
from forewarn.files.fleet import TABLES, read_fleet_file
from forewarn.files.recording import AnswerTable, RecordingTable, read_recording
from forewarn.files.scenario import ScenarioTable, StepTable, declare_step, read_scenario
from forewarn.testing import (
    EmulatedClock,
    EmulatedEvent,
    EmulatedScenario,
    EmulatedVm,
    Emulator,
)

ROOT = Path(__file__).parent.parent.parent
PAGES = sorted(
    page for where in ("", "docs/**/", "examples/**/") for page in ROOT.glob(f"{where}*.md")
)
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?:)([^)#]+)?(?:#([^)]+))?\)")
FOREWARN = Path(sys.executable).with_name("forewarn")
CITATION = re.compile(r"compatibility\.md#([\w-]+)")


def fences(language: str) -> list[str]:
    return [code for name, code in FENCE.findall(readme()) if name == language]


def readme() -> str:
    return (ROOT / "README.md").read_text(encoding="utf-8")


def anchors(page: Path) -> set[str]:
    titles = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


def test_picture_of_the_demo_begins_with_a_full_frame() -> None:
    picture = (ROOT / "docs" / "demo.svg").read_text(encoding="utf-8")
    rows = dict(re.findall(r'<g id="r(\d+)">(.*)</g>', picture))
    (first, *_) = re.findall(r"^<use.*$", picture, re.MULTILINE)

    seen = "\n".join(re.sub("<.*?>", "", rows[row]) for row in re.findall(r"#r(\d+)", first))

    assert len(seen.splitlines()) > 20
    for part in ("Rolling Freeze", "$ forewarn maintenance start", "kvm-4", "EventStatus", "lost"):
        assert part in seen


def test_test_in_the_readme_passes(tmp_path: Path) -> None:
    (example,) = fences("python")
    app = (
        "from forewarn.client import Client\n\n"
        "def run_my_app_once(metadata):\n"
        "    with Client(metadata) as client:\n"
        "        client.approve(*client.events())\n\n"
    )
    (tmp_path / "test_readme.py").write_text(app + example, encoding="utf-8")

    pytest_alone = [sys.executable, "-m", "pytest", "-q", "--rootdir", ".", "-c", "/dev/null"]
    done = subprocess.run(
        pytest_alone, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )

    assert "1 passed" in done.stdout, done.stdout


def test_fleet_in_the_readme_is_one() -> None:
    (text,) = fences("toml")

    assert len(read_fleet_file(text).virtual_machines) == 1


def test_fleet_file_of_the_reference_is_one_and_has_every_key() -> None:
    page = (ROOT / "docs" / "reference" / "fleet-file.md").read_text(encoding="utf-8")
    (text,) = [text for language, text in FENCE.findall(page) if language == "toml"]

    fleet = read_fleet_file(text)

    assert len(fleet.virtual_machines) == 3
    for table, keys in TABLES.items():
        assert f"[[{table}]]" in text
        assert all(re.search(rf"^{key} = ", text, re.MULTILINE) for key in keys), table


def scenarios_page() -> str:
    return (ROOT / "docs" / "reference" / "scenarios.md").read_text(encoding="utf-8")


def test_scenario_of_the_reference_is_one_and_has_every_key() -> None:
    text, _ = (code for name, code in FENCE.findall(scenarios_page()) if name == "toml")

    assert len(read_scenario(text).steps) == 10
    keys = {*ScenarioTable.model_fields, *StepTable.model_fields} - {"step"}
    assert all(re.search(rf"^{key} = ", text, re.MULTILINE) for key in keys)


def test_recording_of_the_reference_is_one_and_has_every_key(tmp_path: Path) -> None:
    _, text = (code for name, code in FENCE.findall(scenarios_page()) if name == "toml")
    (tmp_path / "recording.toml").write_text(text, encoding="utf-8")

    assert len(read_recording(tmp_path / "recording.toml").answers) == 3
    keys = {*RecordingTable.model_fields, *AnswerTable.model_fields} - {"answer"}
    assert all(re.search(rf"^{key} = ", text, re.MULTILINE) for key in keys)


@pytest.mark.parametrize("scenario", built_in_scenarios().values(), ids=lambda each: each.name)
def test_built_in_scenario_is_in_the_reference_as_it_is(scenario: Scenario) -> None:
    steps = ", ".join(describe_step(declare_step(step)) for step in scenario.steps)

    assert f"| `{scenario.name}` | {steps} | {scenario.description} |" in scenarios_page()


def test_roles_of_the_reference_are_those_there_are() -> None:
    page = (ROOT / "docs" / "reference" / "access.md").read_text(encoding="utf-8")

    assert re.findall(r"^\| `(\w+)` \| (.*) \|$", page, re.MULTILINE) == list(MAY.items())
    assert f"at most {LINES_PER_MINUTE} refusals for one valid token" in page
    assert f"{LINES_PER_MINUTE} for one address, and {LINES_OF_ALL} for all addresses" in page
    assert f"beyond {CALLERS_PER_MINUTE} tokens or addresses" in page


def test_faults_of_the_reference_are_those_there_are() -> None:
    page = (ROOT / "docs" / "reference" / "faults.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([\w-]+)` \|([^|]*)\|([^|]*)\|", page, re.MULTILINE)

    documented = {
        kind: (frozenset(re.findall(r"\w+", needed)), frozenset(re.findall(r"\w+", optional)))
        for kind, needed, optional in rows
    }

    assert documented == {
        str(kind): (known.needed, known.optional) for kind, known in FAULTS.items()
    }


def test_commands_with_a_dry_run_are_listed() -> None:
    page = (ROOT / "docs/reference/operating.md").read_text(encoding="utf-8")
    section = page.partition("## Dry runs")[2].partition("\n## ")[0]
    listed = {
        noun: re.findall(r"`([\w-]+)`", verbs)
        for noun, verbs in re.findall(r"^\| `([\w-]+)` \| (.*) \|$", section, re.MULTILINE)
    }

    nouns: Any = get_command(app)
    known = {
        name: [
            verb
            for verb, command in getattr(noun, "commands", {}).items()
            if any("--dry-run" in each.opts for each in command.params)
        ]
        for name, noun in nouns.commands.items()
    }
    assert listed == {name: verbs for name, verbs in known.items() if verbs}


def test_kinds_of_reasons_of_the_reference_are_those_there_are() -> None:
    page = (ROOT / "docs" / "reference" / "events.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`[^|]*) \| (yes)? ?\|", page, re.MULTILINE)

    documented = {
        kind: bool(holds) for kinds, holds in rows for kind in re.findall(r"[\w-]+", kinds)
    }

    assert documented == {str(kind): kind in HOLDING for kind in ReasonKind}


def test_kinds_of_blockers_and_verdicts_of_the_reference_are_those_there_are() -> None:
    page = (ROOT / "docs" / "reference" / "planning.md").read_text(encoding="utf-8")
    tables = page.split("## Find out why a Maintenance waits")[1].split("| verdict |")

    blockers, verdicts = (
        {
            kind
            for row in re.findall(r"^\| (`[^|]*) \|", table, re.MULTILINE)
            for kind in re.findall(r"`([\w-]+)`", row)
        }
        for table in tables
    )

    assert blockers == {str(kind) for kind in BlockerKind}
    assert verdicts == {str(kind) for kind in VerdictKind}


@pytest.mark.parametrize(
    "kind", [Emulator, EmulatedVm, EmulatedEvent, EmulatedClock, EmulatedScenario]
)
def test_everything_a_test_can_hold_is_in_the_reference(kind: type) -> None:
    page = (ROOT / "docs/reference/testing.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(?:\w+\.)?(\w+)[`(]", page))

    assert {name for name in dir(kind) if not name.startswith("_")} <= named


def test_example_of_the_testing_reference_runs() -> None:
    page = (ROOT / "docs/reference/testing.md").read_text(encoding="utf-8")
    (example,) = (code for name, code in FENCE.findall(page) if name == "python")

    subprocess.run([sys.executable, "-c", example], check=True, timeout=60)


def scripts_of_the_testing_reference() -> tuple[str, str]:
    page = (ROOT / "docs/reference/testing.md").read_text(encoding="utf-8")
    beside, alone = (code for name, code in FENCE.findall(page) if name == "sh")
    return beside, alone


def run_script(script: str, folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run *command* and then sh with *script*, where our command and one that approves are."""
    (folder / "my-program").write_text(
        f"#!{sys.executable}\n"
        "from forewarn.client import Client\n"
        "with Client() as client:\n"
        "    client.approve(*client.events())\n"
    )
    (folder / "my-program").chmod(0o755)
    (folder / "test.sh").write_text(script)
    return subprocess.run(
        [*command, "/bin/sh", "-e", "test.sh"],
        cwd=folder,
        env={"PATH": f"{os.defpath}{os.pathsep}{FOREWARN.parent}"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_script_beside_an_emulator_passes_and_fails_with_its_program(tmp_path: Path) -> None:
    script, _ = scripts_of_the_testing_reference()
    emulator = (str(FOREWARN), "emulator", "--clock", "virtual", "--")

    right = run_script(script, tmp_path, *emulator)
    wrong = run_script(script.replace("./my-program --once", "true"), tmp_path, *emulator)

    assert right.returncode == 0, right.stderr
    assert wrong.returncode == 1, wrong.stderr


def test_script_of_a_job_starts_an_emulator_and_leaves_nothing(tmp_path: Path) -> None:
    _, script = scripts_of_the_testing_reference()

    done = run_script(script, tmp_path)

    assert done.returncode == 0, done.stderr
    assert "Reboot" in done.stdout
    assert {path.name for path in tmp_path.iterdir()} == {"my-program", "test.sh"}


def test_generated_reference_is_up_to_date() -> None:
    script = ROOT / "scripts" / "generate_reference.py"

    checked = subprocess.run(
        [sys.executable, script, "--check"], capture_output=True, text=True, check=False
    )

    assert checked.returncode == 0, checked.stdout


def test_lines_of_a_help_that_stay_apart_do_so_in_the_reference() -> None:
    page = (ROOT / "docs/reference/cli.md").read_text(encoding="utf-8")

    assert re.search(r"```text\n.*bashrc: +source <\(forewarn completion bash\)\n.*zshrc", page)
    assert "\b" not in page


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target, anchor in LINK.findall(page.read_text(encoding="utf-8")):
        path = page.parent / target if target else page
        assert path.exists(), f"{target} does not exist"
        assert not anchor or anchor in anchors(path), f"{target} has no heading #{anchor}"


def test_code_cites_headings_that_exist() -> None:
    known = anchors(ROOT / "docs" / "reference" / "compatibility.md")

    cited = {
        anchor
        for module in ROOT.glob("src/**/*.py")
        for anchor in CITATION.findall(module.read_text(encoding="utf-8"))
    }

    assert cited
    assert cited <= known


def test_architecture_names_files_and_functions_that_exist() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")

    for path in re.findall(r"`((?:\w+/)+\w+\.py)`", text):
        assert any((root / path).exists() for root in (ROOT, ROOT / "src" / "forewarn")), path
    code = "".join(path.read_text(encoding="utf-8") for path in ROOT.glob("src/**/*.py"))
    for word in re.findall(r"`([a-zA-Z_]+)`", text):
        assert re.search(rf"\b{word}\b", code), f"nothing is called {word}"


def test_architecture_answers_each_question_once() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")

    questions = Counter(re.findall(r"^\| (.+?) \|", text, flags=re.MULTILINE))
    del questions["looking for"]

    assert questions
    assert set(questions.values()) == {1}
