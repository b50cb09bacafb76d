"""Commands in processes of their own, none of which outlives its test."""

import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

Spawn = Callable[..., "subprocess.Popen[str]"]


@contextmanager
def spawning(environment: Mapping[str, str], folder: Path, **options: Any) -> Iterator[Spawn]:
    """Give a function that starts a command in *folder*; what is left at the end is killed."""
    started: list[subprocess.Popen[str]] = []

    def spawn(*command: str | Path) -> "subprocess.Popen[str]":
        process = subprocess.Popen(
            command,
            env=dict(environment),
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **options,
        )
        started.append(process)
        return process

    try:
        yield spawn
    finally:
        for process in started:
            process.kill()
            process.communicate()
