"""Keeps the commit that a package is built from in the package, as `forewarn/commit.txt`.

Where there is no checkout, such as in the build of an image, FOREWARN_COMMIT names it.
"""

import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

NAME = "forewarn/commit.txt"


class CommitHook(BuildHookInterface):  # type: ignore[misc]
    """Adds the file, except to an editable installation, whose commit changes."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the file if the commit is known."""
        commit = os.environ.get("FOREWARN_COMMIT") or find_commit(Path(self.root))  # noqa: TID251
        if version == "editable" or not commit or (Path(self.root) / "src" / NAME).exists():
            return
        self._folder = tempfile.TemporaryDirectory()
        path = Path(self._folder.name) / "commit.txt"
        path.write_text(f"{commit}\n", encoding="ascii")
        build_data["force_include"][str(path)] = (
            f"src/{NAME}" if self.target_name == "sdist" else NAME
        )


def find_commit(root: Path) -> str:
    """Return the commit of the checkout at *root*, if it is one."""
    if not (root / ".git").exists():
        return ""
    words = ("git", "-C", str(root), "rev-parse", "--short=8", "HEAD")
    found = subprocess.run(words, capture_output=True, text=True, check=False)  # noqa: S603
    return found.stdout.strip()
