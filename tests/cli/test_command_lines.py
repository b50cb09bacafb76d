"""Every verb that rules give for something that holds is one that the CLI has."""

import pytest
from typer.main import get_command

from forewarn.cli.app import app
from forewarn.domain.blockers import Blocker, BlockerKind, Release
from forewarn.domain.names import MaintenanceId
from forewarn.domain.why import Remedy, Verb
from forewarn.protocol.vocabulary import EventId
from forewarn.wording.command_lines import COMMANDS, command_for, say_blocker

IDS = {
    Verb.RESUME_SERVER: (),
    Verb.RESUME: ("M1",),
    Verb.RETRY: ("M1", "kvm-1"),
    Verb.SKIP: ("M1", "kvm-1"),
    Verb.ABORT: ("M1",),
    Verb.START: ("E1",),
    Verb.COMPLETE: ("E1",),
    Verb.SETTLE_DONE: ("E1/web-0",),
    Verb.SETTLE_FAILED: ("E1/web-0",),
}
BY_OTHER_MEANS = {Verb.MOVE_AWAY, Verb.CORRECT_EXECUTORS, Verb.ASK_OTHERS}


def test_every_verb_has_a_command_or_is_done_by_other_means() -> None:
    assert COMMANDS.keys() == set(Verb) == {*IDS, *BY_OTHER_MEANS}
    assert {verb for verb in Verb if not COMMANDS[verb].startswith("forewarn ")} == BY_OTHER_MEANS


def test_impact_of_an_event_that_another_maintenance_waits_for_is_checked_first() -> None:
    ids = (EventId("E1"),)
    busy = Blocker(kind=BlockerKind.BUSY, release=Release.BY_HAND, event_ids=ids, awaited=ids)

    sentence, _ = say_blocker(busy, MaintenanceId("M1"))

    assert sentence.endswith(
        "Make sure that its impact is not running any more; then type: forewarn event complete E1"
    )


@pytest.mark.parametrize("verb", IDS)
def test_command_of_every_verb_is_one_that_the_cli_takes(verb: Verb) -> None:
    command, words = get_command(app), command_for(Remedy(verb=verb, ids=IDS[verb])).split()[1:]

    while hasattr(command, "resolve_command"):
        context = command.make_context("forewarn", [], resilient_parsing=True)
        _, found, words = command.resolve_command(context, words)
        assert found, f"there is no command for {verb}"
        command = found
    with command.make_context("forewarn", words) as parsed:
        said = [each for value in parsed.params.values() for each in _words(value)]

    assert set(IDS[verb]) <= set(said)


def _words(value: object) -> list[str]:
    return [str(each) for each in value] if isinstance(value, list | tuple) else [str(value)]
