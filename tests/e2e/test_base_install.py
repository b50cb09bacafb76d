"""The wheel, alone in a clean environment: the base install works without dependencies."""

import re
import subprocess
from pathlib import Path
from zipfile import ZipFile

import pytest
from tests.e2e.conftest import ServerMaker, wait_until
from tests.e2e.plain_azure import EVENT, plain_azure
from tests.wheels import ROOT, Environment, build_wheel, uv

from forewarn.commit import read_commit

pytestmark = pytest.mark.timeout(300)

BASE_PACKAGES = ("forewarn.protocol", "forewarn.domain", "forewarn.client", "forewarn.agent")
IMPORT_EVERYTHING = """
import importlib, pkgutil, sys
there_before = set(sys.modules)  # a distribution's sitecustomize, for one
for name in sys.argv[1:]:
    package = importlib.import_module(name)
    for module in pkgutil.walk_packages(getattr(package, "__path__", []), name + "."):
        importlib.import_module(module.name)
imported = {name.partition(".")[0] for name in set(sys.modules) - there_before}
imported = {name for name in imported if not name.startswith("_sysconfigdata")}  # of the platform
print(*sorted(imported - set(sys.stdlib_module_names) - {"forewarn"}))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="module")
def bare(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    return Environment(tmp_path_factory.mktemp("bare") / "venv", wheel)


def test_base_install_imports_nothing_but_itself_and_the_standard_library(
    bare: Environment,
) -> None:
    imported = bare.run("python", "-c", IMPORT_EVERYTHING, *BASE_PACKAGES)

    assert (imported.returncode, imported.stdout.strip()) == (0, ""), imported.stderr


def test_wheel_has_the_built_in_scenarios(wheel: Path) -> None:
    written = {path.name for path in (ROOT / "src/forewarn/emulator/scenarios").iterdir()}

    with ZipFile(wheel) as archive:
        packed = {Path(name).name for name in archive.namelist() if name.endswith(".toml")}

    assert written
    assert packed == written


def test_bare_command_says_what_to_install(bare: Environment) -> None:
    answer = bare.run("forewarn")

    assert answer.returncode == 2
    assert "pip install 'forewarn[server]'" in answer.stderr
    assert "Traceback" not in answer.stderr


def test_emulator_says_what_to_install(bare: Environment) -> None:
    answer = bare.run("python", "-c", "import forewarn.testing")

    said = answer.stderr.splitlines()
    assert re.fullmatch(
        r"ModuleNotFoundError: forewarn\.testing needs \w+; run: pip install 'forewarn\[pytest\]'",
        said[-1],
    )
    assert answer.stderr.count("Traceback") == 1


def test_plugin_is_no_burden_to_a_project_that_only_has_pytest(wheel: Path, tmp_path: Path) -> None:
    environment = Environment(tmp_path / "venv", wheel)
    environment.install(f"pytest=={pytest.__version__}")
    project = tmp_path / "project"
    project.mkdir()
    (project / "test_one.py").write_text(
        "import sys\n\ndef test_one():\n    assert 'forewarn.pytest_plugin' in sys.modules\n"
        "\ndef test_two(scheduled_events):\n    pass\n"
    )

    result = environment.run("python", "-m", "pytest", "-W", "error", cwd=project)

    assert "1 passed, 1 error" in result.stdout, result.stdout + result.stderr
    assert "pip install 'forewarn[pytest]'" in result.stdout
    assert "Traceback" not in result.stdout


def test_wheel_holds_the_package_and_nothing_else(wheel: Path, tmp_path: Path) -> None:
    uv("pip", "install", "--quiet", "--no-deps", "--target", str(tmp_path), str(wheel))

    installed = {path.name.partition("-")[0] for path in tmp_path.glob("[a-z]*")}

    assert installed == {"forewarn", "bin"}


def test_wheel_knows_the_commit_it_was_built_from(bare: Environment) -> None:
    code = "from forewarn.commit import read_commit; print(read_commit())"
    known = bare.run("python", "-c", code)

    assert known.stdout.strip() == read_commit()


def write_configuration(folder: Path, endpoint: str) -> Path:
    folder.mkdir()
    file = folder / "agent.toml"
    settings = {"endpoint": endpoint, "state_dir": folder / "state", "approval": "when-ready"}
    file.write_text("\n".join(f'{key} = "{value}"' for key, value in settings.items()))
    hook = folder / "hooks.d" / "scheduled.d" / "10-note"
    hook.parent.mkdir(parents=True)
    hook.write_text(f'#!/bin/sh\necho "$EVENT_TYPE" >> {folder}/journal\n')
    hook.chmod(0o755)
    return file


def test_bare_agent_checks_a_running_service(
    bare: Environment, start_server: ServerMaker, tmp_path: Path
) -> None:
    server = start_server()
    (event,) = server.create("Reboot", "solo-0")
    endpoint = f"http://127.0.0.1:{server.metadata_port}/vm/solo-0"

    checked = bare.run(
        "forewarn-agent", "check", "--config", str(write_configuration(tmp_path / "vm", endpoint))
    )

    assert checked.returncode == 0, checked.stderr
    assert f"server          {endpoint}, incarnation 1" in checked.stdout
    assert "this machine    solo-0" in checked.stdout
    assert f"{event['event_id']} Reboot Scheduled: handle" in checked.stdout


def test_bare_agent_checks_plain_azure(bare: Environment, tmp_path: Path) -> None:
    with plain_azure() as azure:
        azure.show(EVENT, {**EVENT, "Resources": ["WestNO_1"]})
        file = write_configuration(tmp_path / "vm", azure.endpoint)

        checked = bare.run("forewarn-agent", "check", "--config", str(file))

    assert checked.returncode == 0, checked.stderr
    assert "this machine    WestNO_0" in checked.stdout
    assert f"{EVENT['EventId']} Freeze Scheduled: ignore" in checked.stdout
    assert f"{EVENT['EventId']} Freeze Scheduled: affects other machines only" in checked.stdout


def test_agent_needs_nothing_that_windows_lacks(bare: Environment, tmp_path: Path) -> None:
    script = str(Path(__file__).with_name("as_on_windows.py"))
    with plain_azure() as azure:
        file = write_configuration(tmp_path / "vm", azure.endpoint)
        azure.show({**EVENT, "EventType": "Reboot"})
        for verb in ("check", "once"):
            done = bare.run("python", script, verb, "--config", str(file))
            assert done.returncode == 0, done.stderr

        assert azure.approved == [EVENT["EventId"]]
    assert (tmp_path / "vm" / "journal").read_text() == "Reboot\n"


def test_agent_runs_without_what_windows_lacks(bare: Environment, tmp_path: Path) -> None:
    script = str(Path(__file__).with_name("as_on_windows.py"))
    with plain_azure() as azure:
        file = write_configuration(tmp_path / "vm", azure.endpoint)
        azure.show({**EVENT, "EventType": "Reboot"})
        command = [str(bare.python), script, "run", "--config", str(file)]
        with subprocess.Popen(command, stderr=subprocess.PIPE) as running:
            wait_until(lambda: bool(azure.approved), "the agent has not approved", 30)
            running.terminate()
            assert running.wait(60) == 0, running.stderr


def test_module_is_the_command(bare: Environment) -> None:
    asked = bare.run("python", "-m", "forewarn.agent", "--help")

    assert asked.returncode == 0
    assert "forewarn-agent run --dry-run" in asked.stdout


def test_agent_says_who_cannot_be_reached(bare: Environment, tmp_path: Path) -> None:
    with plain_azure() as azure:
        gone = azure.endpoint
    file = write_configuration(tmp_path / "vm", gone)

    for verb in ("check", "once"):
        done = bare.run("forewarn-agent", verb, "--config", str(file))

        assert done.returncode == 6
        assert f"No usable answer from {gone}: it refuses connections" in done.stderr
        assert "Traceback" not in done.stderr
