"""`forewarn completion`: what a shell needs to complete command lines."""

from enum import StrEnum
from typing import Annotated, Final

import typer
from typer._completion_classes import completion_init
from typer._completion_shared import get_completion_script

_PROGRAM: Final = "forewarn"

# Without this the framework offers its options for it, and does not understand its own scripts.
completion_init()


class Shell(StrEnum):
    """The shells that are known."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(
    shell: Annotated[Shell, typer.Argument(metavar="bash|zsh|fish", help="The shell.")],
) -> None:
    """Print a script that makes a shell complete commands and names.

    \b
    Put this into ~/.bashrc:  source <(forewarn completion bash)
    or into ~/.zshrc, after compinit:  source <(forewarn completion zsh)
    or into ~/.config/fish/config.fish:  forewarn completion fish | source

    Example: forewarn completion bash
    """  # noqa: D301 - it has to be a backspace, which keeps these lines as they are
    variable = f"_{_PROGRAM.upper()}_COMPLETE"
    script = get_completion_script(prog_name=_PROGRAM, complete_var=variable, shell=shell)
    typer.echo(script.strip())
