"""`forewarn conformance`: a handler in any language goes through situations, and is graded."""

import shutil
import sys
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from forewarn.cli.catalogue import noun
from forewarn.cli.errors import CommandError, ExitCode, reported_errors
from forewarn.cli.options import NETNS, Given, accepting, argument, keyword, option
from forewarn.cli.output import (
    Columns,
    Output,
    OutputOption,
    Row,
    print_answer,
    print_line,
    print_table,
)
from forewarn.cli.signals import stop_signals
from forewarn.cli.times import DURATION, check_interval, read_seconds
from forewarn.protocol.vocabulary import EventType

if TYPE_CHECKING:
    from forewarn.conformance.battery import SituationReport
    from forewarn.conformance.observations import HandlerHook
    from forewarn.conformance.situations import Situation
    from forewarn.conformance.trial import TrialRules

app = noun(
    "conformance",
    "forewarn conformance -- COMMAND is short for forewarn conformance run -- COMMAND.",
)

_CELLS: Final = {"passed": "ok", "failed": "FAIL", "skipped": "-"}

_Only = Annotated[
    list[str] | None,
    option("SITUATION", "Only this situation, or a pattern: 'fault-*'; repeatable."),
]


_OPTIONS: Final = (
    keyword(
        "event_type",
        Annotated[
            EventType,
            option("TYPE", f"{', '.join(EventType)}.", "--type", case_sensitive=False),
        ],
        default=EventType.REBOOT,
    ),
    keyword(
        "timeout",
        Annotated[
            str,
            option(DURATION, "Timeout for each reaction of the handler.", callback=check_interval),
        ],
        default="15s",
    ),
    keyword(
        "jobs",
        Annotated[int, option("N", "Situations to run in parallel.", min=1, max=100)],
        default=8,
    ),
    NETNS,
    keyword(
        "minimum",
        Annotated[int, option("PERCENT", "Minimum score for exit code 0.", min=0, max=100)],
        default=100,
    ),
    keyword("junit", Annotated[Path | None, option("FILE", "Also write JUnit XML to this file.")]),
)


@app.command("run")
@accepting(*_OPTIONS)
def run(
    command: Annotated[list[str], argument("-- COMMAND", "Command that runs the handler.")],
    *,
    only: _Only = None,
    without: Annotated[
        list[str] | None, option("HOOK", "Skip checks that need this hook: prepare or recover.")
    ] = None,
    output: OutputOption = Output.TABLE,
    **flags: Any,
) -> None:
    """Run a handler through test situations and grade it.

    Each situation has its own server and its own process of the handler. The handler is
    web-0 and finds its endpoint in FOREWARN_METADATA_URL; web-1 is in the same
    availability set. The handler must run the program in FOREWARN_CONFORMANCE_PREPARE
    before it approves an event, and the one in FOREWARN_CONFORMANCE_RECOVER after the
    event. See docs/reference/conformance.md.

    The exit code is 0 if the score reaches --minimum, else 1.

    Example: forewarn conformance run -- ./my-handler

    Example: forewarn conformance --only own-event --without recover -- ./my-handler

    Example: forewarn conformance --junit report.xml --netns -- ./my-handler
    """
    with stop_signals(), reported_errors("conformance run"):
        from forewarn.conformance.battery import run_battery  # noqa: PLC0415 - slow to load
        from forewarn.conformance.reports import write_junit, write_object  # noqa: PLC0415

        situations = _choose(only or ["*"])
        rules = _make_rules(command, without or [], flags)
        junit: Path | None = flags["junit"]
        _check(rules, situations)
        if junit is not None:
            _check_writable(junit)
        if rules.is_apart:
            _leave_network()
        tell = _Progress(len(situations)).tell
        report = run_battery(situations, rules, jobs=flags["jobs"], tell=tell)
        print_answer(write_object(report), output, _print_report)
        if junit is not None:
            _write(junit, write_junit(report))
        if report.score < flags["minimum"]:
            raise typer.Exit(ExitCode.FAILED)


@app.command("list")
def list_all(*, only: _Only = None, output: OutputOption = Output.TABLE) -> None:
    """List the situations and the checks in each.

    Example: forewarn conformance list
    """
    with reported_errors("conformance list"):
        rows = [
            {
                "situation": each.name,
                "description": each.description,
                "grades": list(map(str, each.grades)),
            }
            for each in _choose(only or ["*"])
        ]
        print_answer({"situations": rows}, output, _print_situations)


def _choose(patterns: Sequence[str]) -> "list[Situation]":
    from forewarn.conformance.situations import SITUATIONS  # noqa: PLC0415

    for pattern in patterns:
        if not any(fnmatchcase(each.name, pattern) for each in SITUATIONS):
            message = f"--only: no situation matches {pattern!r}."
            hint = "try: forewarn conformance list"
            raise CommandError(message, code=ExitCode.USAGE, hint=hint)
    return [
        each for each in SITUATIONS if any(fnmatchcase(each.name, pattern) for pattern in patterns)
    ]


def _make_rules(command: Sequence[str], without: Sequence[str], flags: Given) -> "TrialRules":
    from forewarn.conformance.observations import HandlerHook  # noqa: PLC0415
    from forewarn.conformance.trial import TrialRules  # noqa: PLC0415

    if unknown := set(without) - set(HandlerHook):
        problem = f"--without: unknown hook {min(unknown)!r}; use {' or '.join(HandlerHook)}."
        raise CommandError(problem, code=ExitCode.USAGE)
    return TrialRules(
        command=command,
        event_type=flags["event_type"],
        timeout=read_seconds(flags["timeout"]),
        is_apart=flags["netns"],
        hooks=frozenset(HandlerHook) - set(map(HandlerHook, without)),
    )


def _check(rules: "TrialRules", situations: "Sequence[Situation]") -> None:
    problem = ""
    if shutil.which(rules.command[0]) is None:
        problem = f"Cannot run {rules.command[0]!r}: not found, or not executable."
    elif sys.platform == "win32" or (rules.is_apart and sys.platform != "linux"):
        problem = "--netns needs Linux." if rules.is_apart else "The hooks need a POSIX shell."
    elif lacking := _lacking_everywhere(rules, situations):
        problem = f"No check applies: all chosen situations need the {min(lacking)} hook."
    if problem:
        raise CommandError(problem, code=ExitCode.USAGE)


def _lacking_everywhere(
    rules: "TrialRules", situations: "Sequence[Situation]"
) -> "frozenset[HandlerHook]":
    """Return the hooks that every one of *situations* needs and the handler does not have."""
    return frozenset.intersection(*(each.needs for each in situations)) - rules.hooks


def _check_writable(path: Path) -> None:
    try:
        path.open("ab").close()
    except OSError as error:
        problem = f"--junit: {path} cannot be written: {error.strerror}."
        raise CommandError(problem, code=ExitCode.USAGE) from error


def _leave_network() -> None:
    """Move this process, before it has threads: none of them could have a user namespace."""
    from forewarn.conformance.trial import OWN_VM  # noqa: PLC0415
    from forewarn.emulator.netns import enter_network_namespace  # noqa: PLC0415 - Linux only

    enter_network_namespace(OWN_VM)


class _Progress:
    """Prints a line to standard error for each situation that has ended."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._told = 0
        self._telling = Lock()

    def tell(self, report: "SituationReport") -> None:
        with self._telling:
            self._told += 1
            failed = f", failed: {', '.join(report.failures)}" if report.failures else ""
            print_line(f"{self._told}/{self._total} {report.name}{failed}", err=True)


def _write(path: Path, content: bytes) -> None:
    try:
        path.write_bytes(content)
    except OSError as error:
        message = f"--junit: {path} cannot be written: {error.strerror}."
        raise CommandError(message, code=ExitCode.FAILED) from error


def _print_situations(answer: Row) -> None:
    print_table(answer["situations"], {"situation": "situation", "what happens": "description"})


def _print_report(answer: Row) -> None:
    grades = [grade["grade"] for grade in answer["grades"]]
    rows = [{"situation": each["situation"], **_outcomes(each)} for each in answer["situations"]]
    columns: Columns = {"situation": "situation", **{grade: grade for grade in grades}}
    print_table(rows, columns)
    situations = {each["situation"]: each for each in answer["situations"]}
    for finding in answer["findings"]:
        _print_finding(finding, situations[finding["situations"][0]])
    skipped = f", {answer['skipped']} skipped" if answer["skipped"] else ""
    checks = answer["passed"] + answer["failed"]
    print_line()
    print_line(
        f"Score: {answer['score']:g} % ({answer['passed']} of {checks} checks passed{skipped})."
    )
    if answer["highest_score"] < 100:
        print_line(
            "A handler that acts on events of other virtual machines scores at most "
            f"{answer['highest_score']} %."
        )


def _outcomes(situation: Row) -> dict[str, Any]:
    return {each["grade"]: _CELLS[each["outcome"]] for each in situation["results"]}


def _print_finding(finding: Row, first: Row) -> None:
    number = len(finding["situations"])
    where = f"{number} situations, e.g. " if number > 1 else ""
    print_line()
    print_line(f"{finding['grade']}: The handler {finding['reason']}.")
    print_line(f"  In {where}{first['situation']}: {first['description']}")
    print_line(f"  Remedy: {finding['remedy']}")
    for line in first["last_lines"]:
        print_line(f"  | {line}")
