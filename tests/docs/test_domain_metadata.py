"""The line of virsh in "Discover your fleet" writes what discovery reads."""

import re
import subprocess
from pathlib import Path

from tests.discovery.conftest import NETWORK, domain
from tests.docs.blocks import ROOT
from tests.needs import find_program

from forewarn.discovery.domains import read_domain

PAGE = (ROOT / "docs/how-to/discover-your-fleet.md").read_text("utf-8")
(COMMAND,) = re.findall(r"```sh\nvirsh (.*?)\n```", PAGE, re.DOTALL)


def test_metadata_that_virsh_writes_is_read(tmp_path: Path) -> None:
    virsh = find_program("virsh")
    file = tmp_path / "kvm-1.xml"
    file.write_text(f"<node>{NETWORK}{domain(0)}</node>", encoding="utf-8")
    # One call, because the test driver forgets everything at the end of it.
    typed = COMMAND.replace("\\\n", " ")

    written = subprocess.run(
        [virsh, "--quiet", "--connect", f"test:///{file}", f"{typed}; dumpxml web-0"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )

    (text,) = re.findall(r"<domain .*</domain>", written.stdout, re.DOTALL)
    assert read_domain(text).keys == {
        "availability_set": "web",
        "update_domain": 0,
        "labels": {"tier": "front"},
    }
