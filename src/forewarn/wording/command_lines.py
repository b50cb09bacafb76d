"""What somebody could do, as what they type: one table from verbs to commands.

Rules give verbs and ids. The texts of the API carry commands, for they are read on terminals; where
there are buttons, the sentences of the rules do without.
"""

from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Final

from forewarn.domain.blockers import Blocker, BlockerKind, Release, Verdict
from forewarn.domain.names import MaintenanceId
from forewarn.domain.phrases import say_names
from forewarn.domain.why import Reason, ReasonKind, Remedies, Remedy, Verb

COMMANDS: Final[Mapping[Verb, str]] = {
    Verb.RESUME_SERVER: "forewarn resume",
    Verb.RESUME: "forewarn maintenance resume {}",
    Verb.RETRY: "forewarn maintenance retry {}",
    Verb.SKIP: "forewarn maintenance skip {}",
    Verb.ABORT: "forewarn maintenance abort {}",
    Verb.START: "forewarn event start {}",
    Verb.COMPLETE: "forewarn event complete {}",
    Verb.SETTLE_DONE: "forewarn task settle {} done",
    Verb.SETTLE_FAILED: "forewarn task settle {} failed",
    Verb.MOVE_AWAY: "move virtual machines to another host",
    Verb.CORRECT_EXECUTORS: "correct the executor file, then send SIGHUP to the server",
    Verb.ASK_OTHERS: "ask the owner of the other scopes",
}
"""The command of each verb, with its ids in braces; or what to do where no command does it."""

_SETTLE: Final = ". Make sure that it is not running any more; then say how it ended: {}"
_COMPLETE: Final = ". Make sure that its impact is not running any more; then type: {}"
_CAUTION: Final = "; first make sure that no task that this ends is still running"
_ENDING: Final = frozenset({Verb.COMPLETE, Verb.SETTLE_DONE, Verb.SETTLE_FAILED})
_DECIDE: Final = ". Retry with: {}; or skip it with: {}"
_OF_BLOCKERS: Final[Mapping[BlockerKind, str]] = {
    BlockerKind.PAUSED: ". Continue with: {}",
    BlockerKind.BUSY: _COMPLETE,
    BlockerKind.BUSY_UNKNOWN: _SETTLE,
    BlockerKind.CAPACITY: _COMPLETE,
    BlockerKind.FAILURE: _DECIDE,
    BlockerKind.FAILURE_HOLDS_ALL: _DECIDE,
    BlockerKind.CAPACITY_NEVER: " with: {}",
    BlockerKind.CALENDAR_NEVER: ". Abort the maintenance with: {}",
    BlockerKind.GATE_HOLDS: ". Ask it again with: {}",
}
_OF_REASONS: Final[Mapping[ReasonKind, str]] = {
    ReasonKind.SERVER_PAUSED: ". Resume it with: {}",
    ReasonKind.BY_HAND: ", with: {}",
    ReasonKind.UNKNOWN: _SETTLE,
    ReasonKind.HOST_UNKNOWN: _SETTLE,
    ReasonKind.OTHER_EVENT: _COMPLETE,
    ReasonKind.OTHER_IMPACT: _COMPLETE,
    ReasonKind.OTHER_TASK_UNKNOWN: _SETTLE,
    ReasonKind.HOST_PAUSED: ". Resume it with: {}",
}
"""How a sentence goes on to its commands, instead of ending."""


def command_for(remedy: Remedy) -> str:
    """Return what to type, or to do."""
    return COMMANDS[remedy.verb].format(" ".join(remedy.ids))


def say_reason(reason: Reason) -> str:
    """Return the sentence of *reason*, with the commands that help."""
    return _go_on(reason.sentence, _OF_REASONS.get(reason.kind), _say_choices(reason.remedies))


def say_blocker(blocker: Blocker, maintenance_id: MaintenanceId) -> tuple[str, str]:
    """Return the sentence of *blocker*, and what it is about, with the commands that help."""
    remedies = blocker.remedies(maintenance_id) if blocker.release is Release.BY_HAND else ()
    if isinstance(blocker.kind, BlockerKind):
        ending = _OF_BLOCKERS.get(blocker.kind)
        commands = (
            _say_choices(remedies)
            if ending in {_COMPLETE, _SETTLE}
            else tuple(map(command_for, chain.from_iterable(remedies)))
        )
        return _go_on(blocker.sentence, ending, commands), blocker.about
    # It is about a reason, and ends as the sentence of that, for each of its events.
    ending, commands = _OF_REASONS.get(blocker.kind), _say_choices(remedies)
    return _go_on(blocker.sentence, ending, commands), _go_on(blocker.about, ending, commands)


def say_actions(verdict: Verdict) -> tuple[str, ...]:
    """Return what has to be done first, each as one or more commands to choose from."""
    return _say_each(verdict.remedies)


def _say_each(remedies: Remedies) -> tuple[str, ...]:
    return tuple(", or ".join(map(command_for, choice)) for choice in remedies)


def _say_choices(remedies: Remedies) -> tuple[str, ...]:
    """Return all that has to be done as the one thing that a sentence ends with."""
    return (say_names(_say_each(remedies), "; "),) if remedies else ()


def say_verdict(verdict: Verdict) -> str:
    """Return the sentence of *verdict*, with what has to be done first."""
    actions = say_names(say_actions(verdict), "; ")
    if not actions:
        return verdict.sentence
    verbs = {remedy.verb for remedy in chain.from_iterable(verdict.remedies)}
    caution = _CAUTION if verbs & _ENDING else ""
    return f"{verdict.sentence.removesuffix('.')}: {actions}{caution}."


def _go_on(sentence: str, ending: str | None, commands: Iterable[str]) -> str:
    said = tuple(commands)
    if ending is None or not said:
        return sentence
    return sentence.removesuffix(".") + ending.format(*said)
