"""The file of executors: which command or which webhook carries out what, where."""

from pathlib import Path

from forewarn.domain.host_work import HostWorkRule
from forewarn.executors.command import Command
from forewarn.executors.host_tasks import HostWork
from forewarn.executors.tables import (
    COMMANDS,
    CommandTable,
    ExecutorFile,
    HostWorkTable,
    WebhookTable,
)
from forewarn.executors.targets import ImpactTarget
from forewarn.files.tables import TablesError, TablesFile, find_command, read_tables


def read_commands(path: Path | None, search_path: str) -> tuple[Command, ...]:
    """Return the commands of the file at *path*, or refuse; programs are found on *search_path*."""
    file = _read_with(path, "command")

    def make(table: CommandTable) -> Command:
        run = find_command(table.run, file.folder, search_path)
        return Command(run=run, selection=table.selection, timeout=table.timeout)

    return file.build("command", file.content.command, make)


def read_targets(path: Path | None) -> tuple[ImpactTarget, ...]:
    """Return the webhooks of the file at *path*, or refuse."""
    file = _read_with(path, "webhook")

    def make(table: WebhookTable) -> ImpactTarget:
        return ImpactTarget(
            url=table.url,
            headers=table.headers,
            secret=table.find_secret(file.folder),
            selection=table.selection,
            timeout=table.timeout,
            request_timeout=table.request_timeout,
        )

    return file.build("webhook", file.content.webhook, make)


def read_host_works(path: Path | None, search_path: str) -> tuple[HostWork, ...]:
    """Return the work on hosts in the file at *path*, if it has any, or refuse."""
    if path is None:
        return ()
    file = read_tables(path, ExecutorFile)

    def make(table: HostWorkTable) -> HostWork:
        return _host_work(table, file.folder, search_path)

    return file.build("host_work", file.content.host_work, make)


def read_host_work_rules(path: Path | None) -> tuple[HostWorkRule, ...]:
    """Return which hosts have work; programs and secrets are not looked for."""
    if path is None:
        return ()
    file = read_tables(path, ExecutorFile)
    return file.build("host_work", file.content.host_work, lambda table: table.rule)


def _host_work(table: HostWorkTable, folder: Path, search_path: str) -> HostWork:
    rule, secret = table.rule, table.find_secret(folder)
    commands = {
        kind: Command(
            run=find_command(words, folder, search_path, COMMANDS[kind]),
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


def _read_with(path: Path | None, table: str) -> TablesFile[ExecutorFile]:
    """Return the file at *path*, which has to have some [[table]]."""
    if path is None:
        raise TablesError("This executor needs a file: give the setting executor_file.")
    file = read_tables(path, ExecutorFile)
    if not getattr(file.content, table):
        raise TablesError(f"{path} has no [[{table}]].")
    return file
