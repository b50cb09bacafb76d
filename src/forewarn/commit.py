"""The commit that this copy of forewarn was made from."""

import subprocess
from functools import cache
from pathlib import Path

import forewarn

_PACKAGE = Path(__file__).parent


def version_with_commit() -> str:
    """Return the version, and the commit if it is known: packages keep it in a file."""
    commit = read_commit()
    return f"{forewarn.__version__} ({commit})" if commit else forewarn.__version__


@cache
def read_commit() -> str:
    """Return the beginning of the commit's id; empty if it is unknown."""
    try:
        return (_PACKAGE / "commit.txt").read_text(encoding="ascii").strip()
    except OSError:
        pass
    repository = _PACKAGE.parent.parent
    if not (repository / ".git").exists():
        return ""
    words = ("git", "-C", str(repository), "rev-parse", "--short=8", "HEAD")
    try:
        found = subprocess.run(words, capture_output=True, text=True, check=True, timeout=5)  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        return ""
    return found.stdout.strip()
