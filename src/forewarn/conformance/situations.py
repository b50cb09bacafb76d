"""The situations that a handler goes through: what happens in each, and what is graded."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from forewarn.conformance.grades import Grade
from forewarn.conformance.observations import HandlerHook
from forewarn.conformance.trial import NEIGHBOUR_VM, OWN_VM, Trial
from forewarn.domain.fault import FAULTS, FaultKind, FaultPart, FaultTraits
from forewarn.testing import EmulatedEvent

Play = Callable[[Trial], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """One situation. *play* makes it happen, if the handler has what it *needs*."""

    name: str
    description: str
    grades: tuple[Grade, ...]
    play: Play
    needs: frozenset[HandlerHook] = frozenset()


_ALWAYS: Final = (Grade.SAW, Grade.ONCE, Grade.POLITE, Grade.RUNNING)
_FULL: Final = (*_ALWAYS, Grade.PREPARED, Grade.RECOVERED)
_NEEDS_PREPARE: Final = frozenset({HandlerHook.PREPARE})


def _own_event(trial: Trial) -> None:
    trial.start_handler()
    _live_through(trial, trial.announce())


def _neighbour_event(trial: Trial) -> None:
    trial.start_handler()
    event = trial.announce(NEIGHBOUR_VM)
    trial.await_seen(event)
    trial.watch()
    _let_happen(trial, event)
    trial.watch(polls=1)


def _canceled(trial: Trial) -> None:
    _finish_in_preparation(trial)
    trial.release_preparation()
    trial.await_recovery()


def _replaced(trial: Trial) -> None:
    _finish_in_preparation(trial)
    event = trial.announce()
    trial.release_preparation()
    _live_through(trial, event)


def _finish_in_preparation(trial: Trial) -> None:
    trial.hold_preparation()
    trial.end_event(_begin_to_prepare(trial))


def _begin_to_prepare(trial: Trial) -> EmulatedEvent:
    trial.start_handler()
    event = trial.announce()
    trial.await_seen(event)
    trial.await_preparation(event)
    return event


def _let_happen(trial: Trial, event: EmulatedEvent) -> None:
    trial.start_event(event)
    trial.watch()
    trial.end_event(event)


def _straight_to_started(trial: Trial) -> None:
    trial.start_handler()
    event = trial.announce(started=True)
    trial.await_seen(event)
    trial.watch()
    trial.end_event(event)
    trial.await_recovery()


def _two_machines(trial: Trial) -> None:
    trial.start_handler()
    other, event = trial.announce(NEIGHBOUR_VM), trial.announce()
    trial.await_seen(other)
    _live_through(trial, event)
    trial.end_event(other)
    trial.watch()


def _overlapping(trial: Trial) -> None:
    trial.start_handler()
    first = trial.announce()
    _get_started(trial, first)
    second = trial.announce()
    _get_started(trial, second)
    trial.end_event(first)
    trial.watch()
    trial.end_event(second)
    trial.await_recovery()


def _restart(trial: Trial) -> None:
    trial.start_handler()
    event = trial.announce()
    _get_started(trial, event)
    trial.watch(polls=1)
    trial.kill_handler()
    trial.start_handler()
    trial.watch()
    trial.end_event(event)
    trial.await_recovery()


def _restart_in_preparation(trial: Trial) -> None:
    trial.hold_preparation()
    event = _begin_to_prepare(trial)
    trial.kill_handler()
    trial.release_preparation()
    trial.start_handler()
    trial.watch(polls=3, until=lambda: bool(event.approvals))
    _let_happen(trial, event)
    trial.await_recovery()


def _failed_preparation(trial: Trial) -> None:
    trial.fail_preparation()
    event = _begin_to_prepare(trial)
    trial.watch()
    _let_happen(trial, event)
    trial.watch(polls=1)


def _get_started(trial: Trial, event: EmulatedEvent) -> None:
    trial.await_seen(event)
    trial.await_answer(event)
    trial.start_event(event)


def _live_through(trial: Trial, event: EmulatedEvent) -> None:
    _get_started(trial, event)
    trial.watch()
    trial.end_event(event)
    trial.await_recovery()


def _suffer(trial: Trial) -> None:
    trial.watch(polls=1)
    trial.watch()  # how often it asks once it knows of the trouble


def _event_behind_fault(kind: FaultKind, parameters: Mapping[str, Any], trial: Trial) -> None:
    trial.start_handler()
    trial.set_fault(kind, parameters)
    event = trial.announce()
    _suffer(trial)
    trial.clear_faults()
    _live_through(trial, event)


def _event_after_fault(kind: FaultKind, parameters: Mapping[str, Any], trial: Trial) -> None:
    trial.start_handler()
    trial.set_fault(kind, parameters)
    misshown = trial.announce_oddly()
    _suffer(trial)
    _end_fault(trial, misshown)


def _second_impact(kind: FaultKind, parameters: Mapping[str, Any], trial: Trial) -> None:
    trial.start_handler()
    misshown = trial.announce_oddly(times_scheduled=2)
    _get_started(trial, misshown)
    trial.watch(polls=1)
    trial.set_fault(kind, parameters)
    # A fault leaves DocumentIncarnation as it is, and many handlers look only at what is new.
    other = trial.announce(NEIGHBOUR_VM)
    _suffer(trial)
    _end_fault(trial, misshown, other)


def _failed_approval(kind: FaultKind, parameters: Mapping[str, Any], trial: Trial) -> None:
    trial.start_handler()
    trial.set_fault(kind, parameters)
    _live_through(trial, trial.announce())


def _end_fault(trial: Trial, *events: EmulatedEvent) -> None:
    for event in events:
        trial.end_event(event)
    trial.clear_faults()
    trial.watch(polls=1)
    _live_through(trial, trial.announce())


_LIFE: Final = (
    Situation(
        name="own-event",
        description=f"An event of {OWN_VM} is announced, approved, started and completed.",
        grades=_FULL,
        play=_own_event,
    ),
    Situation(
        name="neighbor-event",
        description=(
            f"An event of {NEIGHBOUR_VM}, in the same availability set, is announced and completed."
        ),
        grades=(Grade.SAW, Grade.OWN, Grade.POLITE, Grade.RUNNING),
        play=_neighbour_event,
    ),
    Situation(
        name="canceled",
        description=f"An event of {OWN_VM} is canceled during the preparation.",
        grades=(*_ALWAYS, Grade.RECOVERED),
        play=_canceled,
        needs=_NEEDS_PREPARE,
    ),
    Situation(
        name="replaced",
        description=(
            f"An event of {OWN_VM} is canceled during the preparation, and another one announced."
        ),
        grades=_FULL,
        play=_replaced,
        needs=_NEEDS_PREPARE,
    ),
    Situation(
        name="two-machines",
        description=(
            f"An event of {NEIGHBOUR_VM} and one of {OWN_VM} are announced at the same time."
        ),
        grades=(*_FULL, Grade.OWN),
        play=_two_machines,
    ),
    Situation(
        name="overlapping",
        description=(
            f"A second event of {OWN_VM} is announced while the first is Started, and ends later."
        ),
        grades=_FULL,
        play=_overlapping,
    ),
    Situation(
        name="straight-to-started",
        description=f"An event of {OWN_VM} is Started when it is first shown.",
        grades=(*_ALWAYS, Grade.RECOVERED),
        play=_straight_to_started,
    ),
    Situation(
        name="restart",
        description="The handler is killed while the event is Started, and started again.",
        grades=_FULL,
        play=_restart,
    ),
    Situation(
        name="restart-in-preparation",
        description="The handler is killed during the preparation, and started again.",
        grades=_FULL,
        play=_restart_in_preparation,
        needs=_NEEDS_PREPARE,
    ),
    Situation(
        name="failed-preparation",
        description="The preparation fails, and the event starts at NotBefore.",
        grades=(Grade.SAW, Grade.DECLINED, Grade.POLITE, Grade.RUNNING),
        play=_failed_preparation,
        needs=_NEEDS_PREPARE,
    ),
)

_VARIANTS: Final[Mapping[FaultKind, Mapping[str, Mapping[str, Any]]]] = {
    FaultKind.SLOW: {"": {"seconds": 2}},
    FaultKind.DRIP: {"": {"seconds": 2}},
    FaultKind.STATUS: {
        "-410": {"status": 410},
        "-429": {"status": 429, "retry_after": 2},
        "-500": {"status": 500},
    },
    FaultKind.FAILED_POST: {"": {"times": 1}, "-500": {"status": 500, "times": 1}},
    FaultKind.PUBLISH_DELAY: {"": {"seconds": 600}},
    FaultKind.NOT_BEFORE_SLIP: {"": {"seconds": 300}},
    FaultKind.SHORT_NOTICE: {"": {"seconds": 300}},
}
"""The parameters of the faults that need some, by what is added to the name of the situation."""


_PLAYS: Final = {
    FaultKind.SECOND_IMPACT: _second_impact,
    FaultKind.FAILED_POST: _failed_approval,
}


def _of_faults() -> Iterator[Situation]:
    for kind, traits in FAULTS.items():
        # What a handler makes of a document that says something odd is its own affair: it is graded
        # on the event after that.
        is_odd = traits.part is FaultPart.DOCUMENT
        play = _event_after_fault if is_odd else _event_behind_fault
        play = _PLAYS.get(kind, play)
        for suffix, parameters in _VARIANTS.get(kind, {"": {}}).items():
            yield Situation(
                name=f"fault-{kind}{suffix}",
                description=(
                    f"{_describe(kind, traits, parameters)} An event of {OWN_VM} is announced "
                    f"{'after' if is_odd else 'during'} the fault."
                ),
                grades=_FULL,
                play=partial(play, kind, parameters),
            )


def _describe(kind: FaultKind, traits: FaultTraits, parameters: Mapping[str, Any]) -> str:
    if kind is FaultKind.FAILED_POST:
        failure = f"gets {parameters['status']}" if "status" in parameters else "is reset"
        return f"The first POST {failure}."
    if "status" not in parameters:
        return traits.effect
    more = " with Retry-After" if "retry_after" in parameters else ""
    return f"Requests get {parameters['status']}{more}."


SITUATIONS: Final[Sequence[Situation]] = (*_LIFE, *_of_faults())
