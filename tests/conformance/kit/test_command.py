"""What the command refuses before it starts a handler, and what it says."""

import subprocess
import sys
from pathlib import Path

import pytest

FOREWARN = Path(sys.executable).with_name("forewarn")
SECONDS = 45.0

Done = subprocess.CompletedProcess[str]


def run(*words: str | Path) -> Done:
    command = (FOREWARN, "conformance", "run", "--only", "own-event", *words)
    return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)


def test_script_without_a_first_line_for_the_kernel_is_refused(tmp_path: Path) -> None:
    script = tmp_path / "handler"
    script.write_text("sleep 1\n", encoding="utf-8")
    script.chmod(0o755)

    done = run("--", script)

    assert done.returncode == 1
    assert done.stderr == (
        f"forewarn: Cannot start {script}: Exec format error. "
        "A script needs a first line such as #!/bin/sh.\n"
    )


def test_file_that_is_not_executable_is_refused(tmp_path: Path) -> None:
    script = tmp_path / "handler"
    script.write_text("#!/bin/sh\n", encoding="utf-8")

    done = run("--", script)

    assert done.returncode == 2
    assert f"Cannot run '{script}': not found, or not executable." in done.stderr


def test_report_that_cannot_be_written_is_noticed_before_the_run(tmp_path: Path) -> None:
    ran = tmp_path / "ran"

    done = run("--junit", tmp_path / "missing" / "report.xml", "--", "touch", ran)

    assert done.returncode == 2
    assert "--junit: " in done.stderr
    assert "cannot be written: No such file or directory." in done.stderr
    assert not ran.exists()


def test_earlier_report_is_kept_if_the_command_line_is_wrong(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    report.write_text("earlier", encoding="utf-8")

    done = run("--junit", report, "--", "no-such-handler")

    assert done.returncode == 2
    assert report.read_text(encoding="utf-8") == "earlier"


@pytest.mark.parametrize("timeout", ["0s", "0m"])
def test_timeout_is_at_least_a_second(timeout: str) -> None:
    done = run("--timeout", timeout, "--", "false")

    assert done.returncode == 2
    assert "the minimum is 1s." in done.stderr


def test_run_without_a_check_that_applies_is_refused() -> None:
    command = (FOREWARN, "conformance", "run", "--only", "canceled", "--only", "replaced")

    done = subprocess.run(
        (*command, "--without", "prepare", "--", "false"),
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )

    assert (done.returncode, done.stdout) == (2, "")
    assert "No check applies: all chosen situations need the prepare hook." in done.stderr


def test_situations_are_listed_without_the_modules_that_windows_lacks() -> None:
    program = (
        "import sys\n"
        "from forewarn.cli.app import app\n"
        "app(['conformance', 'list', '--only', 'own-event'], standalone_mode=False)\n"
        "print(*sys.modules, sep='\\n')\n"
    )

    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )

    loaded = set(done.stdout.splitlines())
    assert "forewarn.conformance.trial" in loaded, done.stderr
    assert not {"forewarn.emulator.netns", "forewarn.executors.records"} & loaded
