"""The steps that change a host, each as data, and as the command that an operator could type."""

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias, assert_never


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStep:
    """Run a program, with *text* as its input."""

    sentence: str
    words: tuple[str, ...]
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteStep:
    """Write a file, complete or not at all."""

    sentence: str
    path: Path
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveStep:
    """Remove a file."""

    sentence: str
    path: Path


SetupStep: TypeAlias = RunStep | WriteStep | RemoveStep


def as_command(step: SetupStep) -> str:
    """Return what an operator would type to the same end."""
    match step:
        case RunStep(words=words, text=""):
            return shlex.join(words)
        case RunStep(words=words, text=text):
            return f"{shlex.join(words)} <<'END'\n{text}END"
        case WriteStep(path=path, text=text):
            return f"cat > {shlex.quote(str(path))} <<'END'\n{text}END"
        case RemoveStep(path=path):
            return shlex.join(("rm", str(path)))
        case _:
            assert_never(step)
