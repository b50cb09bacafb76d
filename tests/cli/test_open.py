"""`forewarn open`: where there is a desktop a browser is started, with a link that works once."""

from pathlib import Path

import pytest
from tests.cli.test_terminal import on_terminal
from tests.waiting import wait_until

BROWSER = """\
#!/bin/sh
echo "$1" > {}
"""


@pytest.fixture
def browser(tmp_path: Path) -> dict[str, str]:
    """Return the environment in which a browser writes down the link that it opens."""
    program = tmp_path / "browser"
    program.write_text(BROWSER.format(tmp_path / "opened"))
    program.chmod(0o700)
    return {"BROWSER": str(program)}


def test_link_is_opened_on_a_desktop(
    environment: dict[str, str], browser: dict[str, str], tmp_path: Path
) -> None:
    code, seen = on_terminal({**environment, **browser}, "open", DISPLAY=":0")

    opened = tmp_path / "opened"
    assert code == 0
    wait_until(lambda: opened.exists() and opened.read_text() != "", "the browser")
    assert opened.read_text().startswith(f"http://{environment['FOREWARN_SERVER']}/login#fw_")
    assert opened.read_text().strip() in seen


@pytest.mark.parametrize(
    ("arguments", "display"),
    [
        ((), {}),
        (("--print",), {"DISPLAY": ":0"}),
        (("-o", "json"), {"WAYLAND_DISPLAY": "wayland-0"}),
    ],
    ids=["no desktop", "--print", "json"],
)
def test_link_is_only_printed(
    environment: dict[str, str],
    browser: dict[str, str],
    tmp_path: Path,
    arguments: tuple[str, ...],
    display: dict[str, str],
) -> None:
    code, seen = on_terminal({**environment, **browser}, "open", *arguments, **display)

    assert code == 0
    assert f"http://{environment['FOREWARN_SERVER']}/login#fw_" in seen
    assert not (tmp_path / "opened").exists()
