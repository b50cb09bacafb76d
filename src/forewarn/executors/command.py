"""Scripts of the operator carry tasks out, each with an attendant that tells how it ended."""

import shlex
import sys
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from forewarn.executors import attendant
from forewarn.executors.processes import ImpossibleTaskError, ProcessProgram
from forewarn.executors.task_input import LONGEST, Selection, TaskInput
from forewarn.wording.durations import format_duration

EXECUTOR: Final = "command"

_NO_HOST: Final = "it has to run on the host, but the fleet has no host for the virtual machine"


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A program and its arguments, for which events it is meant, and how long it may take.

    With *ssh*, words that end in a destination in which `{host}` stands for the name of a host, it
    runs there and not on this machine.
    """

    run: tuple[str, ...]
    selection: Selection = field(default_factory=Selection)
    timeout: timedelta = LONGEST
    ssh: tuple[str, ...] = ()

    def words_for(self, task: TaskInput) -> tuple[str, ...]:
        """Return what to run here for *task*."""
        if not self.ssh:
            return self.run
        if not task.host:
            raise ImpossibleTaskError(_NO_HOST)
        *program, destination = self.ssh
        # sshd hands one text to a shell, and passes no variables on.
        variables = (f"{name}={value}" for name, value in task.environment().items())
        remote = shlex.join(("env", *variables, *self.run))
        return (*program, "--", destination.replace("{host}", task.host), remote)


def _describe(task: TaskInput, command: Command) -> dict[str, object]:
    return {
        "command": command.words_for(task),
        "timeout": format_duration(command.timeout),
        "timeout_seconds": command.timeout.total_seconds(),
        "input": task.content,
    }


SCRIPTS: Final = ProcessProgram(
    name=EXECUTOR,
    # Isolated: what is in the environment is meant for the script.
    words=(sys.executable, "-I", "-S", attendant.__file__),
    describe=_describe,
)
"""Processes that run a script each."""
