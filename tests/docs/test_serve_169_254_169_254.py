"""What "Serve 169.254.169.254 on a KVM host" says about keys, files and the hook is true."""

import os
import re
import subprocess
from pathlib import Path

import pytest
from tests.cli.test_help import helped
from tests.needs import find_program

from forewarn.host_setup.orders import GuestTable, SetupTable
from forewarn.host_setup.planning import ROUTING_TABLE
from forewarn.host_setup.this_host import STATE_DIRECTORY

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/how-to/serve-169-254-169-254.md").read_text("utf-8")
UNIT = (ROOT / "contrib/systemd/forewarn-host-setup.service").read_text("utf-8")
HOOK = ROOT / "contrib/libvirt/qemu"


def test_every_key_is_described_and_is_a_flag() -> None:
    rows = re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE)

    assert sorted(rows) == sorted({*SetupTable.model_fields} - {"guest"})
    assert all(f"--{name} " in helped("host", "setup") for name in rows)
    (described,) = re.findall(r"^\| `\[\[guest\]\]` \|(.*)$", PAGE, re.MULTILINE)
    assert re.findall(r"`(\w+)`", described) == [*GuestTable.model_fields]


def test_page_names_what_the_setup_leaves() -> None:
    assert f"`{STATE_DIRECTORY}`" in PAGE
    assert f"({ROUTING_TABLE})" in PAGE


def test_unit_applies_the_file_before_the_relay_starts() -> None:
    (start,) = re.findall(r"^ExecStart=\S+ (.*)$", UNIT, re.MULTILINE)

    assert start == "host setup --config /etc/forewarn/host.toml --apply"
    assert re.findall(r"^ExecReload=\S+ (.*)$", UNIT, re.MULTILINE) == [start]
    assert "forewarn-relay.service" in re.findall(r"^Before=(.*)$", UNIT, re.MULTILINE)[0]
    assert f"StateDirectory={STATE_DIRECTORY.name}\n" in UNIT


def test_hook_is_a_sound_script() -> None:
    checked = subprocess.run(
        [find_program("shellcheck"), HOOK], capture_output=True, text=True, timeout=60, check=False
    )

    assert checked.stdout == ""
    assert os.access(HOOK, os.X_OK)


@pytest.mark.parametrize(
    ("operation", "said"),
    [
        ("started", "--no-block reload-or-restart forewarn-host-setup.service\n"),
        ("stopped", "--no-block reload-or-restart forewarn-host-setup.service\n"),
        ("prepare", ""),
    ],
)
def test_hook_reloads_the_unit_without_waiting_for_it(
    tmp_path: Path, operation: str, said: str
) -> None:
    systemctl = tmp_path / "systemctl"
    systemctl.write_text('#!/bin/sh\necho "$@"\n', encoding="ascii")
    systemctl.chmod(0o755)

    done = subprocess.run(
        [HOOK, "web-0", operation, "begin", "-"],
        env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
        input="<domain/>",
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )

    assert done.stdout == said
