"""What we use of typer that it does not document, all in one place.

Five things are not as typer has them: commands are imported when they are run, a noun may have a
usual verb, values are read without pydantic (which costs more than all the rest of a command) and
refused in our words, and help shows arguments by their names alone.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any, Final, get_args

import typer
from typer._click import Command, Context, HelpFormatter
from typer._click.exceptions import UsageError
from typer._click.shell_completion import CompletionItem
from typer._coercion import RuntimeParam
from typer._completion_classes import completion_init
from typer._completion_shared import get_completion_script
from typer._param_types import coerce_cli_choice
from typer.core import TyperArgument, TyperGroup, TyperOption
from typer.main import get_group

from forewarn.cli.catalogue import COMMANDS
from forewarn.wording.invalid_values import say_wrong

__all__ = ["HELP", "TOUCHED", "LazyGroup", "completion_script"]

# Without this the framework offers its options for it, and does not understand its own scripts.
completion_init()

TOUCHED: Final[Mapping[type, str]] = {
    TyperGroup: "commands format_commands format_options get_params list_commands resolve_command"
    " shell_complete",
    Context: "resilient_parsing",
    TyperOption: "_runtime_param get_missing_message type_descriptor",
    TyperArgument: "_runtime_param _usage_display_name display_type_rich get_missing_message"
    " metavar name nargs required type_descriptor",
    RuntimeParam: "_coerce_value annotation parameter_info",
    HelpFormatter: "section write_dl write_paragraph write_text",
    UsageError: "message",
}
"""What is read, set, called or overridden, by class: tests/unit/test_parts.py says what moved."""
HELP: Final = ["--help", "-h"]
"""How help is asked for."""
_FORMER: Final[Mapping[tuple[str, ...], tuple[str, ...]]] = {
    ("emulator", "netns"): ("emulator", "run", "--netns"),
}
"""How a command line began once, and what it begins with now."""
_MOST_SUGGESTIONS: Final = 3
_MOST_CHOICES: Final = 12
"""How many choices of an argument its help lists."""
_NUMBERS: Final[Mapping[type, str]] = {int: "int_parsing", float: "float_parsing"}


def completion_script(program: str, shell: str) -> str:
    """Return what *shell* needs to complete command lines of *program*."""
    variable = f"_{program.upper()}_COMPLETE"
    return get_completion_script(prog_name=program, complete_var=variable, shell=shell).strip()


class LazyGroup(TyperGroup):
    """The commands, the rare ones below the others in one line; imported when they are run."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        vars(self)["commands"] = _Commands()
        _read_without_pydantic(self)

    def list_commands(self, ctx: Context) -> list[str]:  # noqa: ARG002 - typer calls it
        """Return their names."""
        return list(self.commands)

    def resolve_command(
        self, ctx: Context, args: list[str]
    ) -> tuple[str | None, Command | None, list[str]]:
        """Return the command that *args* begin with; or say which may be meant."""
        try:
            spelled = args if ctx.resilient_parsing else self._spell_out(args)
            return super().resolve_command(ctx, spelled)
        except UsageError as error:
            # A verb is meant more likely than a command that is only spelled like it.
            if found := self._with_verb(args[0]):
                said, _, _ = error.message.partition(" Did you mean")
                error.message = f"{said} Did you mean {' or '.join(map(repr, found))}?"
            raise

    def _spell_out(self, args: list[str]) -> list[str]:
        """Return *args* with the usual verb, where the noun has one and they name none."""
        name, word, rest = args[0], "".join(args[1:2]), args[2:]
        if name not in COMMANDS or not COMMANDS[name].usual_verb or word in HELP:
            return args
        if not word or word.startswith("-"):
            return [name, COMMANDS[name].usual_verb, *args[1:]]
        if (name, word) in _FORMER:
            return [*_FORMER[name, word], *rest]
        if word not in getattr(self.commands[name], "commands", ()):
            wanted = f"To run a program, put -- before it: forewarn {name} -- {word}"
            raise UsageError(f"No such command {word!r}. {wanted}")
        return args

    def _with_verb(self, verb: str) -> list[str]:
        nouns = {name: getattr(self.commands[name], "commands", ()) for name in COMMANDS}
        found = [f"{name} {verb}" for name, verbs in nouns.items() if verb in verbs]
        return found if len(found) <= _MOST_SUGGESTIONS else []

    def format_options(self, ctx: Context, formatter: HelpFormatter) -> None:
        """Write only the commands: --help was just typed, and `version` is one of them."""
        self.format_commands(ctx, formatter)

    def format_commands(self, ctx: Context, formatter: HelpFormatter) -> None:  # noqa: ARG002
        """Write what the help says of them."""
        usual = {name: each for name, each in COMMANDS.items() if not each.is_rare}
        for title, is_for_tests in (("Commands", False), ("To test a workload", True)):
            with formatter.section(title):
                formatter.write_dl(
                    [
                        (name, each.summary)
                        for name, each in usual.items()
                        if each.is_for_tests is is_for_tests
                    ]
                )
        rare = sorted(name for name, each in COMMANDS.items() if each.is_rare)
        formatter.write_paragraph()
        formatter.write_text(f"More commands: {', '.join(rare)}.")

    def shell_complete(self, ctx: Context, incomplete: str) -> list[CompletionItem]:
        """Return what *incomplete* may become."""
        options = Command.shell_complete(self, ctx, incomplete)
        listed = COMMANDS.items()
        found = [(name, each.summary) for name, each in listed if name.startswith(incomplete)]
        return [*(CompletionItem(name, help=said) for name, said in found), *options]


class _Commands(Mapping[str, Command]):
    """The commands by name, each imported when it is looked up."""

    def __getitem__(self, name: str) -> Command:
        return _load(name)

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)

    def __contains__(self, name: object) -> bool:
        return name in COMMANDS


@cache
def _load(name: str) -> Command:
    listed = COMMANDS[name]
    group = get_group(import_module(f"forewarn.cli.{listed.module or name}").app)
    for command in (group, *group.commands.values()):
        _read_without_pydantic(command)
        _show_names(command)
    return group if listed.is_noun else group.commands[name]


def _read_without_pydantic(command: Command) -> None:
    for parameter in map(vars, command.get_params(Context(command, help_option_names=HELP))):
        described = parameter["type_descriptor"]
        parameter["_runtime_param"] = _Reader(
            parameter_info=described.parameter_info, annotation=described.annotation
        )


def _show_names(command: Command) -> None:
    """Have *command* say NAME where it would say {NAME} and NAME <str>, and few choices in a line.

    Where there are many, its help says where to find them.
    """
    for each in command.params:
        if isinstance(each, TyperArgument):
            vars(each)["_usage_display_name"] = partial(_name_in_usage, each)
            if not 1 <= len(each.type_descriptor.choices or ()) <= _MOST_CHOICES:
                vars(each)["display_type_rich"] = _say_no_type
        if isinstance(each, TyperArgument | TyperOption):
            vars(each)["get_missing_message"] = partial(_say_choices, each)


def _name_in_usage(argument: TyperArgument) -> str:
    name = argument.metavar or argument.name
    return f"{name if argument.required else f'[{name}]'}{'' if argument.nargs == 1 else '...'}"


def _say_choices(parameter: TyperArgument | TyperOption, ctx: Context | None) -> str:  # noqa: ARG001
    choices = parameter.type_descriptor.choices or ()
    return f"Choose from: {', '.join(str(each.value) for each in choices)}" if choices else ""


def _say_no_type(ctx: Context) -> None:
    """Say nothing: the name of the argument says what it takes."""


@dataclass(frozen=True)
class _Reader(RuntimeParam):
    """Reads the words of a command line."""

    def _coerce_value(self, value: Any, param: Any, ctx: Context) -> Any:
        try:
            if isinstance(value, list | tuple):
                (kind,) = get_args(self.annotation)
                return [self._read(kind, each) for each in value]
            return self._read(self.annotation, value)
        except ValueError as error:
            raise typer.BadParameter(str(error), ctx=ctx, param=param) from error

    def _read(self, kind: type, value: Any) -> Any:
        if isinstance(value, kind):  # as defaults are
            return value
        if issubclass(kind, Enum):
            return self._read_choice(kind, value)
        if kind in _NUMBERS:
            return self._read_number(kind, value)
        if issubclass(kind, Path):
            return kind(value)
        raise TypeError(f"{kind} cannot be read from a command line")

    def _read_choice(self, kind: type[Enum], value: Any) -> Any:
        case = self.parameter_info.case_sensitive
        try:
            return coerce_cli_choice(value, choices=list(kind), case_sensitive=case)
        except ValueError:
            expected = ", ".join(repr(str(each.value)) for each in kind)
            raise ValueError(f"{say_wrong('enum', value, expected=expected)}.") from None

    def _read_number(self, kind: type, value: Any) -> Any:
        low, high = self.parameter_info.min, self.parameter_info.max
        try:
            number = kind(value)
        except ValueError:
            raise ValueError(f"{say_wrong(_NUMBERS[kind], value)}.") from None
        if low is not None and number < low:
            raise ValueError(f"{say_wrong('greater_than_equal', value, ge=low)}.")
        if high is not None and number > high:
            raise ValueError(f"{say_wrong('less_than_equal', value, le=high)}.")
        return number
