"""The configuration of the agent: one TOML file, and what the environment says.

Only this module of the agent reads the environment. Every key is in one of the tables below.
"""

import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar

from forewarn.agent.errors import AgentSettingsError
from forewarn.agent.rules import Rule
from forewarn.agent.vocabulary import ApprovalMode, HookPhase, RuleVerdict
from forewarn.client import Client, EndpointError
from forewarn.protocol.vocabulary import EventSource, EventType

FILE_NAME: Final = "agent.toml"
EVENT_TYPES: Final = (*EventType, "SpotRebalanceRecommendation")
"""What a rule may name: the last is of an api-version that is not generally available."""


_Word = TypeVar("_Word", bound=StrEnum)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSettings:
    """What the configuration says, or the default of each key; None where there is no default."""

    endpoint: str | None = None
    name: str | None = None
    approval: ApprovalMode = ApprovalMode.NEVER
    hooks_dir: Path
    state_dir: Path
    timeout: timedelta = timedelta(minutes=10)
    ask_again: timedelta = timedelta(seconds=10)
    postpone: timedelta = timedelta(minutes=5)
    listen: tuple[str, int] | None = None
    hooks: Mapping[HookPhase, tuple[str, ...]] = field(default_factory=dict)
    rules: tuple[Rule, ...] = ()


_FOR_US_ALONE: Final = frozenset({"NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What the environment of this process says.

    `variables` is what hooks are given. `notify_socket` and `watchdog_seconds` are systemd's.
    """

    variables: Mapping[str, str]
    configuration: Path
    state: Path
    notify_socket: str | None
    watchdog_seconds: float | None
    is_journaled: bool


def read_surroundings(
    variables: Mapping[str, str] = os.environ, *, platform: str = sys.platform
) -> Surroundings:
    """Return what *variables* say, and where things are on *platform*."""
    if platform == "win32":
        configuration = state = Path(variables.get("ProgramData", r"C:\ProgramData")) / "forewarn"
    else:
        configuration, state = Path("/etc/forewarn"), Path("/var/lib/forewarn-agent")
    watchdog = variables.get("WATCHDOG_USEC", "")
    return Surroundings(
        variables={key: value for key, value in variables.items() if key not in _FOR_US_ALONE},
        configuration=configuration,
        state=Path(variables.get("STATE_DIRECTORY") or state),
        notify_socket=variables.get("NOTIFY_SOCKET"),
        watchdog_seconds=int(watchdog) / 1e6 if watchdog.isdecimal() else None,
        is_journaled=_is_standard_error(variables.get("JOURNAL_STREAM", "")),
    )


def read_settings(file: Path | None, surroundings: Surroundings) -> AgentSettings:
    """Return what *file* says; without one, the usual file, which need not be there."""
    where = file or surroundings.configuration / FILE_NAME
    defaults: dict[str, Any] = {
        "hooks_dir": where.parent / "hooks.d",
        "state_dir": surroundings.state,
    }
    try:
        text = where.read_text(encoding="utf-8-sig")  # editors of Windows write a mark first
    except FileNotFoundError:
        if file is None:
            return AgentSettings(**defaults)
        raise AgentSettingsError(
            str(where), "", "file not found; use --config to name another one."
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise AgentSettingsError(str(where), "", f"cannot read the file: {error}.") from error
    try:
        return AgentSettings(**{**defaults, **_read_table(_parse(text), KEYS)})
    except _FlawError as error:
        raise AgentSettingsError(str(where), error.key, error.flaw) from None


def _is_standard_error(stream: str) -> bool:
    """Tell whether *stream*, a device and an inode, is what we write to, or was only inherited."""
    try:
        found = os.fstat(2)
    except OSError:  # it is closed
        return False
    return stream == f"{found.st_dev}:{found.st_ino}"


class _FlawError(Exception):
    """The value of *key* cannot be used; *flaw* is a sentence that says why, and what can."""

    def __init__(self, flaw: str, key: str = "") -> None:
        super().__init__(flaw, key)
        self.flaw = flaw
        self.key = key

    def inside(self, key: str) -> "_FlawError":
        return _FlawError(self.flaw, f"{key}.{self.key}" if self.key else key)


_Reader: TypeAlias = Callable[[Any], object]
_Key: TypeAlias = tuple[str, _Reader]


def _parse(text: str) -> dict[str, Any]:
    import tomllib  # there may be no file, and `once` is to be quick

    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise _FlawError(f"not valid TOML: {error}.") from error
    except RecursionError:
        raise _FlawError("its tables or lists are nested too deeply.") from None


def _read_table(table: object, keys: Mapping[str, _Key]) -> dict[str, Any]:
    if not isinstance(table, dict):
        raise _FlawError(f"it must be a table with the keys {', '.join(keys)}.")
    found = {}
    for key, value in table.items():
        if key not in keys:
            raise _FlawError(f"unknown key; known keys: {', '.join(keys)}.", key)
        name, read = keys[key]
        try:
            found[name] = read(value)
        except _FlawError as error:
            raise error.inside(key) from None
    return found


def _read_text(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise _FlawError('it must be a string, like "web-0".')
    if "\0" in value:
        raise _FlawError("it contains a NUL character.")
    return value


def _read_endpoint(value: object) -> str:
    text = _read_text(value)
    try:
        Client(text)
    except EndpointError as error:
        raise _FlawError(str(error)) from error
    return text


def _read_path(value: object) -> Path:
    path = Path(_read_text(value))
    if not path.is_absolute():
        raise _FlawError("it must be an absolute path.")
    try:
        os.fsencode(path)
    except UnicodeEncodeError as error:
        raise _FlawError(
            f"the locale of this process cannot represent this path: {error}."
        ) from error
    return path


def _read_folder(value: object) -> Path:
    path = _read_path(value)
    if not os.path.isdir(path):  # noqa: PTH112 - Path.is_dir may raise
        raise _FlawError("folder not found; create it, or correct the path.")
    return path


def _read_texts(value: object) -> tuple[str, ...]:
    if isinstance(value, list) and all(isinstance(each, str) and each for each in value):
        return tuple(map(_read_text, value))
    if isinstance(value, str) and value:
        return (_read_text(value),)
    raise _FlawError('it must be a string, or a list like ["one", "two"].')


def _read_some_texts(value: object) -> tuple[str, ...]:
    texts = _read_texts(value)
    if not texts:
        raise _FlawError("the list is empty; give at least one value, or omit the key.")
    return texts


def _read_words(words: Iterable[str]) -> Callable[[object], tuple[str, ...]]:
    allowed = {word.lower(): word for word in words}

    def read(value: object) -> tuple[str, ...]:
        given = _read_some_texts(value)
        for word in given:
            if word.lower() not in allowed:
                raise _FlawError(f"{word!r} is not one of {', '.join(allowed.values())}.")
        return tuple(allowed[word.lower()] for word in given)

    return read


def _read_word(words: type[_Word]) -> Callable[[object], _Word]:
    read = _read_words(words)

    def read_one(value: object) -> _Word:
        if not isinstance(value, str):
            raise _FlawError(f"it must be one of {', '.join(words)}.")
        (word,) = read(value)
        return words(word)

    return read_one


_DURATION: Final = re.compile(r"([0-9]{1,6})(s|m|h)")
_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours"}


def _read_duration(value: object) -> timedelta:
    match = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise _FlawError('it must be a duration like "30s", "10m" or "1h".')
    return timedelta(**{_UNITS[match[2]]: int(match[1])})


def _read_positive_duration(value: object) -> timedelta:
    duration = _read_duration(value)
    if not duration:
        raise _FlawError("it must be longer than 0 s.")
    return duration


def _read_listener(value: object) -> tuple[str, int]:
    host, colon, port = _read_text(value).rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise _FlawError('it must be HOST:PORT, like "127.0.0.1:9169".')
    return host.strip("[]") or "127.0.0.1", int(port)


def _read_rules(value: object) -> tuple[Rule, ...]:
    if not isinstance(value, list):
        raise _FlawError("write each rule as a separate [[rule]] table.")
    return tuple(_read_rule(table, number) for number, table in enumerate(value, 1))


def _read_rule(table: object, number: int) -> Rule:
    try:
        found = _read_table(table, RULE_KEYS)
    except _FlawError as error:
        raise error.inside(str(number)) from None
    if "then" not in found:
        raise _FlawError(f"required key; use one of {', '.join(RuleVerdict)}.", f"{number}.then")
    return Rule(**found)


RULE_KEYS: Final[Mapping[str, _Key]] = {
    "type": ("event_types", _read_words(EVENT_TYPES)),
    "source": ("event_sources", _read_words(EventSource)),
    "shorter_than": ("shorter_than", _read_duration),
    "at_least": ("at_least", _read_duration),
    "name": ("names", _read_some_texts),
    "then": ("then", _read_word(RuleVerdict)),
}
"""The keys of a [[rule]], what they are called in a Rule, and who reads them."""

HOOK_KEYS: Final[Mapping[str, _Key]] = {phase: (phase, _read_texts) for phase in HookPhase}
"""The keys of [hooks]: commands for a shell, by phase."""

KEYS: Final[Mapping[str, _Key]] = {
    "endpoint": ("endpoint", _read_endpoint),
    "name": ("name", _read_text),
    "approval": ("approval", _read_word(ApprovalMode)),
    "hooks_dir": ("hooks_dir", _read_folder),
    "state_dir": ("state_dir", _read_path),
    "timeout": ("timeout", _read_positive_duration),
    "ask_again": ("ask_again", _read_positive_duration),
    "postpone": ("postpone", _read_positive_duration),
    "listen": ("listen", _read_listener),
    "hooks": ("hooks", lambda value: _read_table(value, HOOK_KEYS)),
    "rule": ("rules", _read_rules),
}
"""The keys of the file, what they are called in Settings, and who reads them."""
