"""The file of executors: which command or which webhook carries out what, where."""

import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from forewarn.domain.host_work import HostWorkRule
from forewarn.executors.command import Command
from forewarn.executors.exchange import ImpactTarget
from forewarn.executors.host_tasks import HostWork
from forewarn.executors.tables import COMMANDS, ExecutorFile, HostWorkTable
from forewarn.operations.toml_lines import key_line, place, syntax_line, table_line
from forewarn.operations.toml_tables import WrongKeyError, as_clause, find_program
from forewarn.protocol.errors import ForewarnError

T = TypeVar("T")


class ExecutorFileError(ForewarnError):
    """A file of executors that cannot be used; the sentence begins with file and line."""


def read_commands(path: Path | None, search_path: str) -> tuple[Command, ...]:
    """Return the commands of the file at *path*, or refuse; programs are found on *search_path*."""
    file = _read(path)
    commands = []
    for number, table in enumerate(file.some(file.content.command, "command")):
        with file.blaming("command", number):
            run = (find_program(table.run, file.folder, search_path), *table.run[1:])
        commands.append(Command(run=run, selection=table.selection, timeout=table.timeout))
    return tuple(commands)


def read_targets(path: Path | None) -> tuple[ImpactTarget, ...]:
    """Return the webhooks of the file at *path*, or refuse."""
    file = _read(path)
    targets = []
    for number, table in enumerate(file.some(file.content.webhook, "webhook")):
        with file.blaming("webhook", number):
            secret = table.find_secret(file.folder)
        targets.append(
            ImpactTarget(
                url=table.url,
                headers=table.headers,
                secret=secret,
                selection=table.selection,
                timeout=table.timeout,
                request_timeout=table.request_timeout,
            )
        )
    return tuple(targets)


def read_host_works(path: Path | None, search_path: str) -> tuple[HostWork, ...]:
    """Return the work on hosts in the file at *path*, if it has any, or refuse."""
    if path is None:
        return ()
    file, works = _read(path), []
    for number, table in enumerate(file.content.host_work):
        with file.blaming("host_work", number):
            works.append(_host_work(table, file.folder, search_path))
    return tuple(works)


def read_host_work_rules(path: Path | None) -> tuple[HostWorkRule, ...]:
    """Return which hosts have work; programs and secrets are not looked for."""
    if path is None:
        return ()
    file, rules = _read(path), []
    for number, table in enumerate(file.content.host_work):
        with file.blaming("host_work", number):
            rules.append(table.rule)
    return tuple(rules)


def _host_work(table: HostWorkTable, folder: Path, search_path: str) -> HostWork:
    rule, secret = table.rule, table.find_secret(folder)
    commands = {
        kind: Command(
            run=(find_program(words, folder, search_path, COMMANDS[kind]), *words[1:]),
            timeout=table.timeout_of(kind),
        )
        for kind, words in table.commands.items()
    }
    targets = {
        kind: ImpactTarget(
            url=url,
            headers=table.headers,
            secret=secret,
            timeout=table.timeout_of(kind),
            request_timeout=table.request_timeout,
        )
        for kind, url in table.urls.items()
    }
    return HostWork(rule=rule, means={**commands, **targets})


@dataclass(frozen=True, slots=True)
class _File:
    path: Path
    text: str
    content: ExecutorFile

    @property
    def folder(self) -> Path:
        return self.path.parent.absolute()

    def some(self, tables: tuple[T, ...], name: str) -> tuple[T, ...]:
        if not tables:
            raise ExecutorFileError(f"{self.path} has no [[{name}]].")
        return tables

    @contextmanager
    def blaming(self, table: str, number: int) -> Iterator[None]:
        """Say where in the file a key is wrong."""
        try:
            yield
        except WrongKeyError as wrong:
            where = (table, number, wrong.key)
            raise _problem(self.path, self.text, where, str(wrong)) from None


def _read(path: Path | None) -> _File:
    if path is None:
        raise ExecutorFileError("This executor needs a file: give the setting executor_file.")
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ExecutorFileError(f"{path} cannot be read: {error}.") from error
    try:
        return _File(path, text, ExecutorFile(**tomllib.loads(text)))
    except tomllib.TOMLDecodeError as error:
        where = place(path, syntax_line(error))
        raise ExecutorFileError(f"{where} is not TOML: {error}.") from error
    except ValidationError as error:
        raise _refusal(path, text, error.errors()[0]) from None


_PROBLEMS: Final = {
    "extra_forbidden": "there is no such key",
    "missing": "it is missing",
    "tuple_type": "write it as a list",
    "too_short": "write a program and its arguments",
}
"""What is wrong, where pydantic's own words would say little to who wrote the file."""


def _refusal(path: Path, text: str, error: ErrorDetails) -> ExecutorFileError:
    problem = _PROBLEMS.get(error["type"], error["msg"].removeprefix("Value error, "))
    # ("webhook", 0, "url"), ("command", 0, "run", 1), or ("pigeon",)
    table, number, key = (*error["loc"], "", "")[:3]
    if isinstance(number, int):
        return _problem(path, text, (str(table), number, str(key)), problem)
    line = key_line(text, str(table))
    return ExecutorFileError(f"{place(path, line)}: {table}: {as_clause(problem)}.")


def _problem(path: Path, text: str, where: tuple[str, int, str], problem: str) -> ExecutorFileError:
    table, number, key = where
    what = f"{key} of {table} {number + 1}" if key else f"{table} {number + 1}"
    line = table_line(text, table, number, key)
    return ExecutorFileError(f"{place(path, line)}: {what}: {as_clause(problem)}.")
