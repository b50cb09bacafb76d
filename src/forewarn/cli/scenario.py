"""`forewarn scenario`: timelines of events, built in or from a file."""

import math
import time
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final

from forewarn.cli.arguments import AFFECTED
from forewarn.cli.catalogue import noun
from forewarn.cli.emulation import OPTIONS, Emulation, Program, emulate
from forewarn.cli.errors import CommandError, ExitCode, reported_errors
from forewarn.cli.failures import ServerRefusedError
from forewarn.cli.files import read_text, refuse_lines
from forewarn.cli.options import (
    Flag,
    Given,
    accepting,
    argument,
    option,
    speed_option,
    switch,
    taking,
)
from forewarn.cli.output import Columns, Output, Row, print_fields, print_line, table_of, time_of
from forewarn.cli.patience import ASK_EVERY, say_wait
from forewarn.cli.session import Session, command
from forewarn.cli.signals import stop_signals
from forewarn.cli.times import DURATION, check_duration, check_interval, read_seconds
from forewarn.domain.limits import FASTEST
from forewarn.protocol.versions import NEWEST
from forewarn.wording.durations import format_duration

app = noun("scenario")

_SCENARIOS: Final[Columns] = {
    "scenario": "name",
    "steps": lambda scenario: ", ".join(map(describe_step, scenario["steps"])),
    "what happens": "description",
}
_RUNS: Final[Columns] = {
    "run": "run_id",
    "scenario": "name",
    "status": "status",
    "began": lambda run: time_of(run["began_at"]),
    "steps left": "steps_remaining",
    "resources": "resources",
}
_FIELDS: Final[Columns] = {
    "run": "run_id",
    "scenario": "name",
    "status": "status",
    "virtual machines": "resources",
    "began": lambda run: time_of(run["began_at"]),
    "finished": lambda run: time_of(run["finished_at"]),
    "speed": "speed",
    "steps left": "steps_remaining",
}
_ORDER: Final = {
    "vm": replace(AFFECTED, key="virtual_machines"),
    "speed": Flag(
        kind=float, option=option("N", "Run N times as fast.", min=1, max=FASTEST), default=1
    ),
}


def describe_step(step: Row) -> str:
    """Return *step* in a few words: when, what, and how long is its notice and its impact."""
    from forewarn.domain.scenario import INTERVENTIONS  # noqa: PLC0415 - slow to load

    verbs = ("announce", "begin", *INTERVENTIONS, "fault", "clear")
    verb = next(verb for verb in verbs if verb in step)
    if verb in {"announce", "begin"}:
        notice = f"{step['notice']} + " if "notice" in step else ""
        return f"{step['at']} {verb} {step[verb]} ({notice}{step['impact']})"
    return f"{step['at']} {verb} {step[verb]}" if verb == "fault" else f"{step['at']} {verb}"


@command(app, "list")
def list_all(session: Session) -> None:
    """List the built-in scenarios.

    Example: forewarn scenario list
    """
    session.show(session.get("scenarios"), table_of("scenarios", _SCENARIOS))


@command(app, "run")
@taking(_ORDER)
def run(
    session: Session,
    order: Given,
    *,
    scenario: Annotated[str, argument("NAME|FILE.toml", "Built-in scenario, or a file.")],
    no_wait: Annotated[bool, switch("Return as soon as the run has started.", "--no-wait")] = False,
) -> None:
    """Run a scenario and follow it to its end.

    Under a virtual clock, the command does not wait, and exits with 5 if the run has not
    ended.

    Example: forewarn scenario run live-migration --vm web-0 --speed 60
    """
    begun = _begin(session, scenario, order)
    narrator = _Narrator(is_silent=session.output is not Output.TABLE)
    narrator.say(f"Started run {begun['run_id']} of {begun['name']}.")
    try:
        # What falls due at once may have happened since it was begun.
        begun = session.get("scenario-runs", begun["run_id"])
        narrator.tell(begun)
        if not no_wait:
            begun = _follow(session, begun, narrator)
    except KeyboardInterrupt:
        message = "Stopped watching; the run is still in progress."
        hint = f"stop it with: forewarn scenario stop {begun['run_id']}"
        raise CommandError(message, code=ExitCode.INTERRUPTED, hint=hint) from None
    if session.output is not Output.TABLE:
        session.show(begun, _print_one)
    if not no_wait:
        _require_end(begun)


@command(app, "status")
def status(
    session: Session,
    run_id: Annotated[str | None, argument("ID", "Only this run.")] = None,
) -> None:
    """Show all runs, or the history of one.

    Example: forewarn scenario status
    """
    if run_id is None:
        session.show(session.list("scenario-runs"), table_of("scenario_runs", _RUNS))
    else:
        session.show(session.get("scenario-runs", run_id), _print_one)


@command(app, "stop")
def stop(session: Session, run_id: Annotated[str, argument("ID", "Id of the run.")]) -> None:
    """Stop a run and cancel its Scheduled events.

    Example: forewarn scenario stop 5c2bd0a4-6a50-4e4b-9b4f-3f4f0f6a3c11
    """
    session.show(session.post("scenario-runs", run_id, "stop"), _print_one)


@app.command("record")
def record(
    *,
    url: Annotated[
        str, option("URL", "URL of the endpoint, without /metadata.", "--from")
    ] = "http://169.254.169.254",
    output: Annotated[Path, option("FILE", "File to create.")] = Path("recording.toml"),
    every: Annotated[str, option(DURATION, "Time between polls.", callback=check_interval)] = "1s",
    seconds: Annotated[
        str | None, option(DURATION, "How long to record.", "--for", callback=check_duration)
    ] = None,
    api_version: Annotated[str, option("VERSION", "api-version to request.")] = NEWEST.name,
    redact: Annotated[bool, switch("Rename virtual machines to vm-0, vm-1 …", "--redact")] = False,
) -> None:
    """Record the answers of an endpoint until Ctrl-C.

    It sends only GET requests, and polls less often after errors. The file is complete
    after every change; forewarn scenario replay serves it.

    Example: forewarn scenario record --from http://169.254.169.254 --for 8h
    """
    with stop_signals(), reported_errors("scenario record"):
        from forewarn.cli.recorder import RecordingOrder  # noqa: PLC0415 - slow to load
        from forewarn.cli.recorder import record as record_all  # noqa: PLC0415
        from forewarn.clocks import SystemClock  # noqa: PLC0415

        order = RecordingOrder(
            url=url,
            api_version=api_version,
            output=output,
            every=read_seconds(every),
            seconds=math.inf if seconds is None else read_seconds(seconds),
            redact=redact,
        )
        record_all(order, f"{SystemClock().now():%Y-%m-%dT%H:%M:%SZ}")


@app.command("replay")
@accepting(*OPTIONS)
def replay(
    file: Annotated[Path, argument("FILE", "Recording to serve.")],
    command: Program = None,
    *,
    vm: Annotated[str, option("NAME", "VM that the program runs on.")] = "vm-0",
    speed: Annotated[float, speed_option("the times of the recording")] = 1,
    **flags: Any,
) -> None:
    """Serve a recording byte for byte, to a program or until Ctrl-C.

    The replay starts at the first poll. Approvals are accepted, but have no effect. For
    variables and exit codes, see forewarn emulator --help.

    Example: forewarn scenario replay recording.toml --speed 60 -- ./my-handler.sh
    """

    def make() -> Emulation:
        from forewarn.bootstrap.emulated import with_recording  # noqa: PLC0415 - the server install
        from forewarn.files.recording import read_recording  # noqa: PLC0415

        around = partial(with_recording, read_recording(file), speed)
        return Emulation(command=command, vms=[vm], around=around, **flags)

    emulate("scenario replay", make)


def _begin(session: Session, scenario: str, order: Given) -> Row:
    file = Path(scenario)
    if file.suffix != ".toml":
        begun: Row = session.post("scenario-runs", body={**order, "name": scenario})
        return begun
    try:
        text = read_text(file, command="scenario run")
        begun = session.post("scenario-runs", body={**order, "toml": text})
    except ServerRefusedError as refusal:
        if "line" not in refusal.problem:
            raise
        mistakes = refusal.problem.get("mistakes") or [refusal.problem]
        placed = [(mistake["line"], str(mistake["detail"])) for mistake in mistakes]
        raise refuse_lines(file, placed, refusal.code) from None
    return begun


class _Narrator:
    """Tells each thing that happens in a run once."""

    def __init__(self, *, is_silent: bool) -> None:
        self._is_silent = is_silent
        self._told: set[tuple[Any, ...]] = set()

    def say(self, line: str) -> None:
        if not self._is_silent:
            print_line(line)

    def tell(self, run: Row) -> None:
        for entry in run["log"]:
            key = tuple(entry.values())
            if key not in self._told:
                self._told.add(key)
                self.say(_tell(run, entry))
        if run["finished_at"] is not None:
            self.say(f"{_offset(run, run['finished_at'])}  {run['status']}")

    def tell_waits(self, session: Session, run: Row) -> None:
        """Tell which other events have to end first, of which the run itself knows nothing."""
        for event in () if self._is_silent else run["events"]:
            waits = say_wait(session, event)
            if waits and (key := (event["event_id"], waits)) not in self._told:
                self._told.add(key)
                self.say(f"{_offset(run, session.get('clock')['now'])}  {_name(event)}: {waits}")


def _follow(session: Session, run: Row, narrator: _Narrator) -> Row:
    is_still = session.get("clock")["kind"] == "virtual"
    narrator.tell_waits(session, run)
    while run["finished_at"] is None and not is_still:
        time.sleep(ASK_EVERY)
        run = session.get("scenario-runs", run["run_id"])
        narrator.tell(run)
        narrator.tell_waits(session, run)
    return run


def _require_end(run: Row) -> None:
    """Fail if *run* has not ended, which is so where the clock stands still."""
    if run["finished_at"] is None:
        message = f"Run {run['run_id']} has not ended: the clock is virtual and stands still."
        hint = f"try: forewarn clock advance 15m, then forewarn scenario status {run['run_id']}"
        raise CommandError(message, code=ExitCode.TIMED_OUT, hint=hint)


def _tell(run: Row, entry: Row) -> str:
    event = next(each for each in run["events"] if each["event_id"] == entry["event_id"])
    what, detail = entry["what"], entry["detail"]
    if what == "approved":
        happened = f"approved by {detail or entry['who']}"
    elif what == "scheduled":
        happened = f"scheduled for {time_of(event['first_not_before'])}"
    else:
        happened = f"{what} ({detail})" if detail else what
    return f"{_offset(run, entry['at'])}  {_name(event)}: {happened}"


def _name(event: Row) -> str:
    return f"{event['event_type']} of {', '.join(event['resources'])}"


def _offset(run: Row, moment: str) -> str:
    passed = datetime.fromisoformat(moment) - datetime.fromisoformat(run["began_at"])
    return f"{'+' + format_duration(passed):<8}"


def _print_one(run: Row) -> None:
    print_fields(run, _FIELDS)
    if run["log"]:
        print_line()
    _Narrator(is_silent=False).tell(run)
