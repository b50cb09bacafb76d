"""`forewarn-agent once`: look once, do what is due, and end. Most of the time nothing is."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from forewarn.agent.startup import (
    DONE,
    FAILED,
    UNFINISHED,
    concluded,
    find_identity,
    make_client,
    make_finder,
    prepare,
)
from forewarn.agent.state import StateFile
from forewarn.agent.vocabulary import HookOutcome


@concluded
def once(file: Path | None, *, is_dry: bool) -> int:
    """Do what is due, and return what the process ends with."""
    settings, surroundings = prepare(file)
    with StateFile(settings.state_dir, is_dry=is_dry) as state, make_client(settings) as client:
        cases = state.load()
        finder = make_finder(settings, state)
        changes = client.changes(case.event for case in cases.values() if not case.is_over)
        if not changes and not cases:
            return DONE
        from forewarn.agent.agent import Looked
        from forewarn.agent.loop import (
            compose_agent,
            make_inbox,
            make_performer,
            settle_agent,
            take_signals,
        )

        inbox = make_inbox()
        performer = make_performer(client, surroundings, inbox, is_dry=is_dry)
        me = find_identity(settings, client, state)
        patient = replace(settings, ask_again=timedelta.max)  # nobody is asked twice at one look
        agent = compose_agent(patient, me, cases, state, performer, finder)
        for change in changes:
            inbox.put(change)
        inbox.put(Looked())
        take_signals(inbox)
        is_finished = settle_agent(agent, inbox)
    outcomes = {outcome for _, outcome in agent.outcomes}
    return _find_status(outcomes, has_failed=agent.has_failed, is_finished=is_finished)


def _find_status(outcomes: set[HookOutcome], *, has_failed: bool, is_finished: bool) -> int:
    """Return what the process ends with after hooks came to their end with *outcomes*."""
    if not is_finished:
        return FAILED
    if HookOutcome.NOT_YET in outcomes:
        return UNFINISHED
    return FAILED if has_failed or outcomes - {HookOutcome.READY} else DONE
