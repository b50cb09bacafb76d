"""Scenarios as people write them, in TOML. Every refusal names the line that is wrong."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from forewarn.domain.errors import InvalidError, InvalidNameError
from forewarn.domain.event import Trigger, usual_description
from forewarn.domain.names import check_name
from forewarn.domain.notice import MINIMUM_NOTICE
from forewarn.domain.scenario import (
    INTERVENTIONS,
    USUAL_IMPACT,
    Announcement,
    Intervention,
    Scenario,
    ScenarioStep,
)
from forewarn.files.toml import NotTomlError, TomlLines, decode, split_lines
from forewarn.protocol.vocabulary import EventSource, EventType
from forewarn.wording.durations import DurationError, format_duration, parse_duration

LONGEST: Final = timedelta(days=365)
MOST_LINES: Final = 1000
MOST_CHARACTERS: Final = 65_536

SCENARIO_KEYS: Final[Mapping[str, type]] = {"name": str, "description": str, "step": list}
_EVENT_KEYS: Final[Mapping[str, type]] = {
    "label": str,
    "source": str,
    "description": str,
    "duration": int,
    "impact": str,
}
STEP_KEYS: Final[Mapping[str, Mapping[str, type]]] = {
    "announce": {"at": str, "announce": str, "notice": str, **_EVENT_KEYS},
    "begin": {"at": str, "begin": str, **_EVENT_KEYS},
    **{trigger.value: {"at": str, trigger.value: object} for trigger in INTERVENTIONS},
}
"""The verbs a step may have, with every key it may have then and the type of its value."""

_WORDS: Final = {str: "text in quotes", int: "a whole number", list: "a list: write [[step]]"}


class ScenarioError(InvalidError):
    """A scenario that cannot be read or run; *line* is where it is wrong in its file."""

    def __init__(self, problem: str, line: int | None = None) -> None:
        super().__init__(problem)
        self.line = line


def read_scenario(text: str) -> Scenario:
    """Return the scenario that the TOML *text* describes, or refuse with the line."""
    content = _decode(text)
    top = _Place(text)
    _check(top, content, SCENARIO_KEYS, "A scenario")
    for key in ("name", "step"):
        if not content.get(key):
            raise top.error(f"A scenario needs a {key}.", key)
    return Scenario(
        name=_name(top, content, "name", "scenario"),
        description=_text(top, content, "description"),
        steps=_read_steps(text, content["step"]),
    )


def declare_step(step: ScenarioStep) -> dict[str, object]:
    """Return *step* as a file would say it, leaving nothing to a default but what nobody knows."""
    at: dict[str, object] = {"at": format_duration(step.at)}
    if not isinstance(step, Announcement):
        return {**at, step.trigger.value: step.label}
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


@dataclass(frozen=True, slots=True)
class _Place:
    """A table in the file: a step by its number, counted from 0, or what is around them."""

    text: str
    step: int | None = None

    def error(self, problem: str, key: str | None = None) -> ScenarioError:
        """Return what is wrong with *key*, or with the table."""
        lines = TomlLines(self.text)
        if self.step is None:
            return ScenarioError(problem, lines.find_key(key or "") or 1)
        return ScenarioError(problem, lines.find("step", self.step, key or ""))


def _decode(text: str) -> dict[str, Any]:
    lines = len(split_lines(text))
    if lines > MOST_LINES or len(text) > MOST_CHARACTERS:
        problem = f"A scenario has at most {MOST_LINES} lines and {MOST_CHARACTERS} characters."
        raise ScenarioError(problem, min(lines, MOST_LINES + 1))
    try:
        return decode(text)
    except NotTomlError as error:
        raise ScenarioError(str(error), error.line) from error


def _check(place: _Place, table: Mapping[str, Any], keys: Mapping[str, type], what: str) -> None:
    for key, value in table.items():
        if key not in keys:
            raise place.error(f"{what} has no key {key!r}; it may have {', '.join(keys)}.", key)
        # bool is an int to Python, but not to people.
        if not isinstance(value, keys[key]) or (keys[key] is int and isinstance(value, bool)):
            raise place.error(f"{key} must be {_WORDS[keys[key]]}.", key)


def _read_steps(text: str, entries: list[Any]) -> tuple[ScenarioStep, ...]:
    steps: list[ScenarioStep] = []
    for number, entry in enumerate(entries):
        place = _Place(text, number)
        if not isinstance(entry, dict):
            raise place.error("A step is a table: write [[step]].")
        verb = _verb(place, entry)
        _check(place, entry, STEP_KEYS[verb], f"A step with {verb}")
        if "at" not in entry:
            raise place.error("A step needs its time; write at = '15m', or '0s' for the beginning.")
        at = _time(place, entry, "at", timedelta(0))
        if steps and at < steps[-1].at:
            raise place.error("A step cannot be before the one above it.", "at")
        read = _read_intervention if verb in set(INTERVENTIONS) else _read_announcement
        steps.append(read(place, entry, at, steps))
    return tuple(steps)


def _verb(place: _Place, entry: Mapping[str, Any]) -> str:
    given = [key for key in entry if key in STEP_KEYS]
    if not given:
        known = {key for keys in STEP_KEYS.values() for key in keys}
        misspelled = next((key for key in entry if key not in known), None)
        raise place.error(f"A step needs one of {', '.join(STEP_KEYS)}.", misspelled)
    if len(given) > 1:
        raise place.error(f"A step does one thing: {' or '.join(given)}.", given[1])
    return given[0]


def _read_announcement(
    place: _Place, entry: Mapping[str, Any], at: timedelta, before: list[ScenarioStep]
) -> Announcement:
    verb = "announce" if "announce" in entry else "begin"
    event_type = EventType(_choice(place, entry, verb, tuple(EventType)))
    notice = _time(place, entry, "notice", MINIMUM_NOTICE[event_type])
    source = EventSource(_choice(place, entry, "source", tuple(EventSource), EventSource.PLATFORM))
    usual = usual_description(event_type, source)
    return Announcement(
        at=at,
        label=_label(place, entry, before),
        event_type=event_type,
        event_source=source,
        description=_text(place, entry, "description", usual),
        duration_in_seconds=_seconds(place, entry, "duration"),
        notice=notice if verb == "announce" else None,
        impact=_time(place, entry, "impact", USUAL_IMPACT[event_type]),
    )


def _read_intervention(
    place: _Place, entry: Mapping[str, Any], at: timedelta, before: list[ScenarioStep]
) -> Intervention:
    trigger = next(trigger for trigger in INTERVENTIONS if trigger in entry)
    labels = [step.label for step in before if isinstance(step, Announcement)]
    label = entry[trigger]
    if not labels:
        raise place.error(
            f"There is nothing to {trigger} yet; announce it in a step above.", trigger
        )
    if label is True:
        label = labels[-1]
    if label not in labels:
        problem = f"{trigger} must be true, for what was announced last, or a label of a step above"
        raise place.error(f"{problem}: {', '.join(labels)}.", trigger)
    return Intervention(at=at, label=label, trigger=Trigger(trigger))


def _label(place: _Place, entry: Mapping[str, Any], before: list[ScenarioStep]) -> str:
    label = str(len(before) + 1)
    if "label" in entry:
        label = _name(place, entry, "label", "label")
    if any(step.label == label for step in before):
        problem = f"There is a label {label!r} above already; give this step another."
        raise place.error(problem, "label")
    return label


def _name(place: _Place, table: Mapping[str, Any], key: str, noun: str) -> str:
    name: str = table[key]
    try:
        check_name(name, noun)
    except InvalidNameError as error:
        raise place.error(str(error), key) from error
    return name


def _text(place: _Place, table: Mapping[str, Any], key: str, default: str = "") -> str:
    text: str = table.get(key, default)
    if len(text) > 4096:
        raise place.error(f"{key} has more than 4096 characters.", key)
    return text


def _choice(
    place: _Place, entry: Mapping[str, Any], key: str, words: tuple[str, ...], usual: str = ""
) -> str:
    word: str = entry.get(key, usual)
    if word not in words:
        raise place.error(f"{key} must be one of {', '.join(words)}.", key)
    return word


def _seconds(place: _Place, entry: Mapping[str, Any], key: str) -> int | None:
    seconds: int | None = entry.get(key)
    if seconds is not None and not 0 <= seconds <= LONGEST.total_seconds():
        problem = "must be seconds, a year at most; leave it out if unknown"
        raise place.error(f"{key} {problem}.", key)
    return seconds


def _time(place: _Place, entry: Mapping[str, Any], key: str, usual: timedelta) -> timedelta:
    if key not in entry:
        return usual
    try:
        time = parse_duration(entry[key])
    except DurationError as error:
        raise place.error(f"{key}: {error}", key) from error
    if time > LONGEST:
        raise place.error(f"{key} must be a year at most.", key)
    return time
