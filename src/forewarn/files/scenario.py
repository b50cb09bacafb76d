"""Scenarios as people write them, in TOML. Every refusal names the lines that are wrong."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, TypeAlias

from pydantic import Field

from forewarn.domain.errors import InvalidError, InvalidNameError
from forewarn.domain.event import Trigger, usual_description
from forewarn.domain.fault import FAULT_PARAMETERS, Fault, FaultError, FaultKind
from forewarn.domain.names import check_name
from forewarn.domain.notice import MINIMUM_NOTICE
from forewarn.domain.scenario import (
    INTERVENTIONS,
    USUAL_IMPACT,
    Announcement,
    ClearStep,
    FaultStep,
    Intervention,
    Scenario,
    ScenarioStep,
)
from forewarn.files.tables import (
    NamedTable,
    Some,
    Table,
    TablesError,
    TablesFile,
    WrongKeyError,
    duration,
)
from forewarn.files.toml import split_lines
from forewarn.protocol.vocabulary import EventSource, EventType
from forewarn.wording.durations import format_duration

LONGEST: Final = timedelta(days=365)
MOST_LINES: Final = 1000
MOST_CHARACTERS: Final = 65_536

_OF_EVENTS: Final = ("label", "source", "description", "duration", "impact")
STEP_KEYS: Final[Mapping[str, Sequence[str]]] = {
    "announce": ("at", "announce", "notice", *_OF_EVENTS),
    "begin": ("at", "begin", *_OF_EVENTS),
    **{trigger.value: ("at", trigger.value) for trigger in INTERVENTIONS},
    "fault": ("at", "fault", *FAULT_PARAMETERS),
    "clear": ("at", "clear"),
}
"""The verbs a step may have, with every key it may have then."""

Span: TypeAlias = Annotated[timedelta, duration(LONGEST, shortest=timedelta(0))]
ScenarioText: TypeAlias = Annotated[str, Field(max_length=4096)]


class ScenarioError(InvalidError):
    """A scenario that cannot be read or run; *line* is where it is wrong in its file.

    If several lines are, each has an error of its own among its *mistakes*.
    """

    def __init__(
        self, problem: str, line: int | None = None, mistakes: Sequence["ScenarioError"] = ()
    ) -> None:
        super().__init__(problem)
        self.line = line
        self.mistakes = tuple(mistakes)


class StepTable(Table):
    """A step of any kind; which keys go together is in `STEP_KEYS`."""

    at: Span
    announce: EventType | None = None
    begin: EventType | None = None
    approve: object = None
    complete: object = None
    cancel: object = None
    fault: FaultKind | None = None
    clear: object = None
    notice: Span | None = None
    label: str | None = None
    source: EventSource = EventSource.PLATFORM
    description: ScenarioText | None = None
    duration: int | None = Field(default=None, ge=0, le=int(LONGEST.total_seconds()), strict=True)
    impact: Span | None = None
    times: object = None
    seconds: object = None
    status: object = None
    retry_after: object = None
    event_type: object = None


class ScenarioTable(NamedTable):
    """All of the file."""

    noun: ClassVar = "scenario"
    description: ScenarioText = ""
    step: Annotated[tuple[StepTable, ...], Some]


def read_scenario(text: str) -> Scenario:
    """Return the scenario that the TOML *text* describes, or refuse with the lines."""
    lines = len(split_lines(text))
    if lines > MOST_LINES or len(text) > MOST_CHARACTERS:
        problem = f"A scenario has at most {MOST_LINES} lines and {MOST_CHARACTERS} characters."
        raise ScenarioError(problem, min(lines, MOST_LINES + 1))
    try:
        return _read(TablesFile(Path("scenario"), text, ScenarioTable))
    except TablesError as error:
        mistakes = [ScenarioError(said, line or 1) for line, said in error.mistakes]
    if len(mistakes) == 1:
        raise mistakes[0]
    problem = f"The scenario has {len(mistakes)} mistakes. {' '.join(map(str, mistakes))}"
    raise ScenarioError(problem, mistakes[0].line, mistakes)


def declare_step(step: ScenarioStep) -> dict[str, object]:
    """Return *step* as a file would say it, leaving nothing to a default but what nobody knows."""
    at: dict[str, object] = {"at": format_duration(step.at)}
    if isinstance(step, Intervention):
        return {**at, step.trigger.value: step.label}
    if isinstance(step, FaultStep):
        return {**at, "fault": step.fault.kind.value, **step.fault.parameters()}
    if isinstance(step, ClearStep):
        return {**at, "clear": True if step.kind is None else step.kind.value}
    verb = "begin" if step.notice is None else "announce"
    entry: dict[str, object] = {
        verb: step.event_type.value,
        "label": step.label,
        "source": step.event_source.value,
        "description": step.description,
        "duration": step.duration_in_seconds,
        "notice": None if step.notice is None else format_duration(step.notice),
        "impact": format_duration(step.impact),
    }
    return at | {key: value for key, value in entry.items() if value is not None}


def _read(file: TablesFile[ScenarioTable]) -> Scenario:
    tables, steps = file.content.step, list[ScenarioStep]()
    verbs = iter(file.build("step", tables, _verb))

    def make(table: StepTable) -> None:
        verb = next(verbs)
        # Also a wrong one: those below may be right.
        steps.append(_read_step(table, verb, steps))
        _check(steps, verb)

    file.build("step", tables, make)
    return Scenario(
        name=file.content.name, description=file.content.description, steps=tuple(steps)
    )


def _verb(table: StepTable) -> str:
    """Return what a step does, or refuse if it is not one thing, or has keys of another."""
    given = [verb for verb in STEP_KEYS if verb in table.model_fields_set]
    if not given:
        raise WrongKeyError("", f"it needs one of {', '.join(STEP_KEYS)}")
    verb, *others = given
    if others:
        raise WrongKeyError(others[0], f"a step can only have one of {' and '.join(given)}")
    for key in StepTable.model_fields:
        if key in table.model_fields_set and key not in STEP_KEYS[verb]:
            raise WrongKeyError(key, f"it cannot be used together with {verb}")
    _read_misbehaviour(table)  # refused now, it does not shift the numbers of those below
    return verb


def _read_step(table: StepTable, verb: str, before: Sequence[ScenarioStep]) -> ScenarioStep:
    read = _read_intervention if verb in set(INTERVENTIONS) else _read_announcement
    return _read_misbehaviour(table) or read(table, verb, before)


def _read_misbehaviour(table: StepTable) -> FaultStep | ClearStep | None:
    if table.fault is not None:
        return FaultStep(at=table.at, fault=_read_fault(table, table.fault))
    if table.clear is not None:
        return ClearStep(at=table.at, kind=_read_kind(table.clear))
    return None


def _read_fault(table: StepTable, kind: FaultKind) -> Fault:
    given: dict[str, Any] = {name: getattr(table, name) for name in FAULT_PARAMETERS}
    try:
        return Fault(kind=kind, **given)
    except FaultError as error:
        key = "fault" if given[error.parameter] is None else error.parameter
        raise WrongKeyError(key, str(error)) from None


def _read_kind(cleared: object) -> FaultKind | None:
    if cleared is True:
        return None
    try:
        return FaultKind(str(cleared))
    except ValueError:
        problem = "use true for all faults, or one kind"
        raise WrongKeyError("clear", f"{problem}: {', '.join(FaultKind)}") from None


def _read_announcement(table: StepTable, verb: str, before: Sequence[ScenarioStep]) -> Announcement:
    event_type = EventType(getattr(table, verb))
    usual_notice = MINIMUM_NOTICE[event_type] if verb == "announce" else None
    description = table.description
    if description is None:
        description = usual_description(event_type, table.source)
    return Announcement(
        at=table.at,
        label=str(len(before) + 1) if table.label is None else table.label,
        event_type=event_type,
        event_source=table.source,
        description=description,
        duration_in_seconds=table.duration,
        notice=usual_notice if table.notice is None else table.notice,
        impact=USUAL_IMPACT[event_type] if table.impact is None else table.impact,
    )


def _read_intervention(table: StepTable, verb: str, before: Sequence[ScenarioStep]) -> Intervention:
    label, labels = getattr(table, verb), _labels(before)
    if label is True and labels:
        label = labels[-1]
    return Intervention(at=table.at, label=label, trigger=Trigger(verb))


def _labels(steps: Sequence[ScenarioStep]) -> list[str]:
    return [step.label for step in steps if isinstance(step, Announcement)]


def _check(steps: Sequence[ScenarioStep], verb: str) -> None:
    """Refuse the last of *steps* if it does not go with those above."""
    *before, step = steps
    labels = _labels(before)
    if before and step.at < before[-1].at:
        raise WrongKeyError("at", "it is earlier than that of the previous step")
    if isinstance(step, Announcement):
        _check_label(step.label, labels)
    elif not isinstance(step, Intervention):
        return
    elif not labels:
        raise WrongKeyError(
            verb, f"there is nothing to {verb} yet; announce an event in an earlier step"
        )
    elif step.label not in labels:
        problem = "use true for the last announced event, or the label of an earlier step"
        raise WrongKeyError(verb, f"{problem}: {', '.join(labels)}")


def _check_label(label: str, taken: Sequence[str]) -> None:
    try:
        check_name(label, "label")
    except InvalidNameError as error:
        raise WrongKeyError("label", str(error)) from None
    if label in taken:
        problem = f"the label {label!r} is already used; choose another"
        raise WrongKeyError("label", problem)
