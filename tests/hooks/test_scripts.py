"""What can be said about the hooks of contrib without running them."""

import re
import subprocess
from pathlib import Path

import pytest
from tests.hooks.conftest import HOOKS, STAND_INS, need

README = (HOOKS / "README.md").read_text(encoding="utf-8")
SCRIPTS = sorted(path for path in HOOKS.iterdir() if not path.suffix)
ROWS = dict(re.findall(r"^\| \[(.+?)\]\(.+?\) \|.*\| ([^|]*) \| [^|]* \|$", README, re.MULTILINE))


def test_shell_has_nothing_to_complain_about() -> None:
    need("shellcheck")
    files = map(str, (*SCRIPTS, HOOKS / "hook.sh", *STAND_INS.iterdir()))
    command = ["shellcheck", "--external-sources", "--source-path", "SCRIPTDIR", *files]

    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)

    assert done.returncode == 0, done.stdout


def test_readme_has_each_hook() -> None:
    assert sorted(ROWS) == sorted([*(path.name for path in SCRIPTS), "windows-services.ps1"])


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_readme_has_each_setting(script: Path) -> None:
    beginning = script.read_text(encoding="utf-8").partition("hook.sh")[0]
    settings = re.findall(r"^([A-Z_]+)=", beginning, re.MULTILINE)

    assert list(dict.fromkeys(settings)) == re.findall(r"`(\w+)`", ROWS[script.name])


def test_what_hooks_share_is_no_hook_itself() -> None:
    assert (HOOKS / "hook.sh").stat().st_mode & 0o111 == 0
    for script in SCRIPTS:
        assert script.stat().st_mode & 0o111, script
