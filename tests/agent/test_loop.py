"""What the service does when the server does not do its part."""

import socket
import threading
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.agent.conftest import ID, Stage, make_change, make_event, make_hooks
from tests.e2e.conftest import wait_until
from tests.sdk.conftest import Metadata, answer_well, answer_with, event

from forewarn.agent import loop, service
from forewarn.agent.agent import Looked
from forewarn.agent.loop import Stop, make_inbox, run_agent, settle_agent, watch
from forewarn.agent.performer import Answered, HookEnded
from forewarn.agent.settings import AgentSettings, read_settings, read_surroundings
from forewarn.agent.startup import find_identity
from forewarn.agent.state import StateFile
from forewarn.agent.status import Status
from forewarn.agent.vocabulary import HookOutcome, HookPhase
from forewarn.client import Change, Client, UnavailableError
from forewarn.systemd import SystemdNotifier

SECONDS = 45
NOBODY = SystemdNotifier(None, None)


@pytest.fixture
def metadata() -> Generator[Metadata]:
    server = Metadata()
    yield server
    server.stop()


@pytest.fixture
def settings() -> AgentSettings:
    return read_settings(None, read_surroundings({}))


def test_watch_goes_on_after_a_refusal(metadata: Metadata, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "LONGEST_PAUSE", 0.05)
    metadata.script = [answer_with(b'{"error": "Not you"}', 403)]
    metadata.events = [event(1)]
    inbox, status = make_inbox(), Status()
    with Client(metadata.endpoint) as client:
        watcher = threading.Thread(target=watch, args=(client, lambda: (), inbox, status))
        watcher.start()

        news = inbox.get(timeout=SECONDS)
        assert isinstance(inbox.get(timeout=SECONDS), Looked)
        wait_until(lambda: status.is_ready, "it does not poll", SECONDS)

    watcher.join(SECONDS)
    assert isinstance(news, Change)
    assert status.events.keys() == {news.event.event_id}
    assert not watcher.is_alive()


def test_watch_waits_for_a_server_that_does_not_answer(metadata: Metadata) -> None:
    metadata.script = [answer_with(b"", 503)] * 2
    inbox, status = make_inbox(), Status()
    with Client(metadata.endpoint, patience=0) as client:
        watcher = threading.Thread(target=watch, args=(client, lambda: (), inbox, status))
        watcher.start()

        assert isinstance(inbox.get(timeout=SECONDS), Looked)

    watcher.join(SECONDS)
    assert status.troubles == 2


def test_watch_leaves_a_server_that_refuses_alone_for_longer_each_time(
    metadata: Metadata, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(loop, "time", SimpleNamespace(sleep=pauses.append))
    refusals = [answer_with(b'{"error": "Not you"}', 403)]
    metadata.script = [*refusals * 6, answer_well, answer_well, *refusals * 2]
    inbox, status = make_inbox(), Status()
    with Client(metadata.endpoint, patience=0) as client:
        watcher = threading.Thread(target=watch, args=(client, lambda: (), inbox, status))
        watcher.start()

        for _ in range(2):
            assert isinstance(inbox.get(timeout=SECONDS), Looked)

    watcher.join(SECONDS)
    assert pauses[:8] == [1, 2, 3, 3, 3, 3, 1, 2]
    assert caplog.text.count("watch_refused") == 2


def test_watch_survives_a_mistake(
    metadata: Metadata, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(loop, "LONGEST_PAUSE", 0.05)
    metadata.events = [event(1)]
    inbox, mistakes = make_inbox(), [ZeroDivisionError()]

    class Clumsy(Status):
        def note_change(self, change: Change) -> None:
            if mistakes:
                raise mistakes.pop()
            super().note_change(change)

    with Client(metadata.endpoint) as client:
        status = Clumsy()
        watcher = threading.Thread(target=watch, args=(client, lambda: (), inbox, status))
        watcher.start()

        assert isinstance(inbox.get(timeout=SECONDS), Change)

    watcher.join(SECONDS)
    assert "watch_failed" in caplog.text


@pytest.fixture
def state(tmp_path: Path) -> Generator[StateFile]:
    with StateFile(tmp_path) as state:
        yield state


@pytest.mark.parametrize("last", [None, "web-6"])
@pytest.mark.parametrize("status", [400, 404, 500])
def test_machine_that_is_not_told_its_name_goes_by_its_last_or_its_host_name(
    metadata: Metadata,
    settings: AgentSettings,
    state: StateFile,
    caplog: pytest.LogCaptureFixture,
    status: int,
    last: str | None,
) -> None:
    metadata.script = [answer_with(b"", status)] * (1 if status == 500 else 2)
    if last:
        state.keep_name(last)

    with Client(metadata.endpoint, patience=0) as client:
        me = find_identity(settings, client, state)

    assert me.name == (last or socket.gethostname())
    assert "name_not_told" in caplog.text


@pytest.mark.parametrize("status", [404, 503])
def test_machine_is_not_named_by_a_server_that_answers_nothing(
    metadata: Metadata, settings: AgentSettings, state: StateFile, status: int
) -> None:
    metadata.script = [answer_with(b"", status)] * 3

    with Client(metadata.endpoint, patience=0) as client, pytest.raises(UnavailableError):
        find_identity(settings, client, state)


@pytest.mark.parametrize("trouble", [403, 503])
def test_agent_asks_until_it_is_told_who_it_is(
    metadata: Metadata,
    settings: AgentSettings,
    state: StateFile,
    monkeypatch: pytest.MonkeyPatch,
    trouble: int,
) -> None:
    monkeypatch.setattr(service, "IDENTITY_SECONDS", 0)
    metadata.script = [answer_with(b"", trouble)] * 4 + [answer_with(b'{"name": "web-7"}')]
    status = Status()

    with Client(metadata.endpoint, patience=0) as client:
        me = service.wait_for_identity(settings, client, state, status, NOBODY)

    assert me.name == "web-7"
    assert state.recall_name() == "web-7"
    assert status.troubles > 0


@pytest.mark.parametrize("trouble", [403, 500])
def test_agent_that_is_not_told_its_name_for_long_goes_on(
    metadata: Metadata,
    settings: AgentSettings,
    state: StateFile,
    monkeypatch: pytest.MonkeyPatch,
    trouble: int,
) -> None:
    monkeypatch.setattr(service, "IDENTITY_SECONDS", 0)
    refusal = answer_with(b"", trouble)
    metadata.script = [refusal] * 99 if trouble == 403 else [refusal, answer_well] * 99
    status = Status()

    with Client(metadata.endpoint, patience=0) as client:
        me = service.wait_for_identity(settings, client, state, status, NOBODY)

    assert me.name == socket.gethostname()
    assert status.troubles == service.MOST_TRIES


@pytest.mark.parametrize("name", [None, "web-7"])
def test_machine_that_is_told_its_name_does_not_go_by_its_host_name(
    metadata: Metadata, settings: AgentSettings, state: StateFile, name: str | None
) -> None:
    metadata.script = [answer_with(b'{"name": "web-7"}')]

    with Client(metadata.endpoint) as client:
        me = find_identity(replace(settings, name=name), client, state)

    assert make_event(resources=("web-7",)).affects(me)
    assert not make_event(resources=(socket.gethostname(),)).affects(me)


def test_name_of_the_configuration_is_asked_of_nobody(
    metadata: Metadata, settings: AgentSettings, state: StateFile
) -> None:
    with Client(metadata.endpoint) as client:
        me = find_identity(replace(settings, name="web-7"), client, state)

    assert me.name == "web-7"
    assert metadata.seen == []


def test_second_stop_does_not_wait_for_hooks(stage: Stage) -> None:
    agent, inbox = stage.start(), make_inbox()
    stage.tell(agent, make_change())
    for news in (Stop(), Stop()):
        inbox.put(news)

    run_agent(agent, inbox, Status(), NOBODY)

    assert stage.begun == ["scheduled first"]
    assert agent.is_running


def test_what_comes_at_once_is_decided_on_at_once(stage: Stage) -> None:
    stage.hooks = make_hooks()
    agent, inbox = stage.start(), make_inbox()
    for number in (1, 2, 3):
        inbox.put(make_change(number=number))
    running = threading.Thread(target=run_agent, args=(agent, inbox, Status(), NOBODY))
    running.start()

    wait_until(lambda: bool(stage.asked), "it does not approve", SECONDS)
    inbox.put(Stop())
    running.join(SECONDS)

    assert stage.asked == ["approve 1 2 3"]


def test_one_look_that_is_stopped_waits_for_the_hook_that_is_running(stage: Stage) -> None:
    agent, inbox = stage.start(), make_inbox()
    for news in (make_change(), Stop()):
        inbox.put(news)
    told: list[bool] = []

    looking = threading.Thread(target=lambda: told.append(settle_agent(agent, inbox)))
    looking.start()
    wait_until(inbox.empty, "it does not take the news", SECONDS)
    looking.join(0.3)
    assert looking.is_alive()
    inbox.put(HookEnded(event_id=ID, phase=HookPhase.SCHEDULED, hook="first", status=0))
    looking.join(SECONDS)

    assert told == [False]
    assert stage.begun == ["scheduled first"]
    assert stage.saved[ID].outcome(HookPhase.SCHEDULED, "first") is HookOutcome.READY


def test_one_look_that_is_stopped_twice_does_not_wait(stage: Stage) -> None:
    agent, inbox = stage.start(), make_inbox()
    for news in (make_change(), Stop(), Stop()):
        inbox.put(news)

    assert not settle_agent(agent, inbox)
    assert agent.is_running


def test_one_look_ends_when_nothing_is_left_to_do(stage: Stage) -> None:
    stage.hooks = make_hooks()
    agent, inbox = stage.start(), make_inbox()
    inbox.put(make_change())

    looking = threading.Thread(target=settle_agent, args=(agent, inbox))
    looking.start()
    wait_until(lambda: bool(stage.asked), "it does not approve", SECONDS)
    inbox.put(Answered(event=make_change().event))
    looking.join(SECONDS)

    assert not looking.is_alive()
