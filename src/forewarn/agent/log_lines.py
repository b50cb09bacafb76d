"""The lines of the log that say most: events that are seen, and hooks that have ended."""

import logging
from collections.abc import Mapping
from typing import Final

from forewarn.agent.cases import Case
from forewarn.agent.performer import HookEnded
from forewarn.agent.vocabulary import HookOutcome, RuleVerdict
from forewarn.protocol.document import Event
from forewarn.protocol.identity import Identity

_LEVELS: Final[Mapping[HookOutcome, int]] = {
    HookOutcome.READY: logging.INFO,
    HookOutcome.NOT_YET: logging.INFO,
    HookOutcome.FAILED: logging.ERROR,
    HookOutcome.TIMED_OUT: logging.ERROR,
    HookOutcome.STOPPED: logging.WARNING,
}

_log = logging.getLogger("forewarn.agent")


def tell_opened(case: Case) -> None:
    """Say that an event of this machine was seen, and what is done about it."""
    _log.log(
        logging.WARNING if case.verdict is RuleVerdict.NOTIFY else logging.INFO,
        "event_seen event=%s type=%s status=%s source=%s not_before=%s duration=%s verdict=%s",
        case.event.event_id,
        case.event.event_type,
        case.event.event_status,
        case.event.event_source,
        case.event.not_before,
        case.event.duration_in_seconds,
        case.verdict,
    )


def tell_of_others(event: Event, me: Identity) -> None:
    """Say that an event does not name this machine, which may have been given a wrong name."""
    _log.info(
        "event_of_others event=%s resources=%s name=%s",
        event.event_id,
        ",".join(event.resources),
        me.name,
    )


def tell_ended(ended: HookEnded, outcome: HookOutcome) -> None:
    """Say what came of a hook."""
    _log.log(
        _LEVELS[outcome],
        "hook_ended event=%s phase=%s hook=%r outcome=%s status=%d",
        ended.event_id,
        ended.phase,
        ended.hook,
        outcome,
        ended.status,
    )
