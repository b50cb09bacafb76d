"""The site of the documentation, built from a copy."""

import shutil
import subprocess
import sys
from pathlib import Path

from tests.docs.blocks import ROOT

REPOSITORY = "https://git.example.org/forewarn"


def build_site(copy: Path) -> Path:
    """Build in *copy*, because Zensical writes below its configuration only; return where it is."""
    shutil.copy(ROOT / "mkdocs.yml", copy)
    shutil.copytree(ROOT / "docs", copy / "docs")
    built = subprocess.run(
        [str(Path(sys.executable).with_name("zensical")), "build", "--strict"],
        cwd=copy,
        env={"REPOSITORY": REPOSITORY},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    return copy / "site"
