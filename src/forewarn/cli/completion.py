"""`forewarn completion`: what a shell needs to complete command lines."""

from enum import StrEnum
from typing import Annotated, Final

import typer

from forewarn.cli.catalogue import alone
from forewarn.cli.framework import completion_script

app = alone()

_PROGRAM: Final = "forewarn"


class Shell(StrEnum):
    """The shells that are known."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


@app.command("completion")
def completion(
    shell: Annotated[Shell, typer.Argument(metavar="SHELL", help="Shell to complete for.")],
) -> None:
    """Print a completion script for a shell.

    Add the line for your shell to its startup file:

    \b
    ~/.bashrc:                   source <(forewarn completion bash)
    ~/.zshrc, after compinit:    source <(forewarn completion zsh)
    ~/.config/fish/config.fish:  forewarn completion fish | source

    Example: forewarn completion bash
    """  # noqa: D301 - it has to be a backspace, which keeps these lines as they are
    typer.echo(completion_script(_PROGRAM, shell))
