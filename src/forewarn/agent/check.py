"""`forewarn-agent check`: what there is, and what is wrong with it."""

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

from forewarn.agent.cases import Case
from forewarn.agent.errors import StateError
from forewarn.agent.hooks import HookFinder, find_misfits, find_strays
from forewarn.agent.rules import judge
from forewarn.agent.settings import AgentSettings
from forewarn.agent.startup import (
    DONE,
    FAILED,
    concluded,
    find_identity,
    make_client,
    make_finder,
    make_printable,
    prepare,
)
from forewarn.agent.state import StateFile, check_folder
from forewarn.agent.vocabulary import HookPhase
from forewarn.client import Event
from forewarn.protocol.identity import Identity


@concluded
def check(file: Path | None) -> int:
    """Print what there is, and return what the process ends with."""
    settings, _ = prepare(file)
    _print("rules", f"{len(settings.rules)} from the configuration, then the default rules")
    _print("approval", settings.approval)
    finder = make_finder(settings, StateFile(settings.state_dir))
    for phase, hooks in finder.find().items():
        _print(f"{phase} hooks", ", ".join(hook.name for hook in hooks) or "none")
    problems = tuple(_find_problems(settings, finder))
    try:
        _show_events(settings)
    finally:  # the server may be away
        for problem in problems:
            _print("PROBLEM", problem)
    return FAILED if problems else DONE


def _show_events(settings: AgentSettings) -> None:
    state = StateFile(settings.state_dir)
    with contextlib.suppress(StateError):  # which is one of the problems
        cases = state.read()
        _print("state", f"{settings.state_dir}, {len(cases)} events known")
        for case in cases.values():
            _print("known event", _describe_case(case))
    with make_client(settings) as client:
        me = find_identity(settings, client, state)
        document = client.document()
        _print("server", f"{client.endpoint}, incarnation {document.document_incarnation}")
    _print("this machine", me.name)
    for event in document.events:
        _print("event", _describe(event, me, settings))


def _describe(event: Event, me: Identity, settings: AgentSettings) -> str:
    verdict = (
        judge(event, me, settings.rules) if event.affects(me) else "affects other machines only"
    )
    return f"{event.event_id} {event.event_type} {event.event_status}: {verdict}"


def _describe_case(case: Case) -> str:
    hooks = ", ".join(
        f"{phase} {hook!r} {outcome}"
        for phase, outcomes in case.outcomes.items()
        for hook, outcome in outcomes.items()
    )
    return f"{case.event.event_id} {case.verdict} {case.phase}: {hooks or 'no hooks yet'}"


def _find_problems(settings: AgentSettings, finder: HookFinder) -> Iterator[str]:
    try:
        check_folder(settings.state_dir)
        StateFile(settings.state_dir).read()
    except StateError as error:
        yield str(error)
    for path in finder.find_missing():
        yield (
            f"{path} is missing, which counts as a failed hook, so the agent approves no event;"
            f" restore it. If you removed it on purpose, delete {settings.state_dir / 'folders'}"
            " and restart the agent."
        )
    for path in find_strays(settings.hooks_dir):
        yield (
            f"{path} never runs, because it is not in the folder of a phase; move it to one of"
            f" {', '.join(f'{phase}.d' for phase in HookPhase)}, or remove it."
        )
    for path in find_misfits(settings.hooks_dir):
        yield (
            f"{path} is not executable, which counts as a failed hook, so the agent does not"
            " approve the event; make it executable or remove it."
        )


def _print(label: str, text: str) -> None:
    encoding = sys.stdout.encoding  # which may lack what is in the name of a file
    shown = make_printable(text).encode(encoding, "backslashreplace").decode(encoding)
    print(f"{label:16}{shown}")  # noqa: T201
