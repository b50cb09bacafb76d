"""The wheel of this checkout."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def uv(*arguments: str) -> None:
    """Run uv in the checkout: the one beside us, or the one in PATH."""
    beside_us = Path(sys.executable).with_name("uv")
    command = str(beside_us) if beside_us.exists() else "uv"
    subprocess.run([command, *arguments], check=True, cwd=ROOT)


def build_wheel(folder: Path) -> Path:
    """Build the wheel into *folder*, with the build tools that are pinned."""
    constraints = "requirements/build.txt"
    uv("build", "--quiet", "--wheel", "--out-dir", str(folder), "--build-constraints", constraints)
    (built,) = folder.glob("forewarn-*.whl")
    return built
