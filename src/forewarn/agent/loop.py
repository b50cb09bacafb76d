"""Put an agent together and let it run: a queue of what happens, and one thread that takes it.

The document is watched in one thread, hooks and requests have their own; all they do is to put what
comes of it into the queue.
"""

import contextlib
import logging
import signal
import time
from collections.abc import Callable
from math import inf
from queue import Empty, SimpleQueue
from types import FrameType
from typing import Final, TypeAlias

from forewarn.agent.agent import Agent, Looked, Memory
from forewarn.agent.cases import Cases
from forewarn.agent.clock import read_clock
from forewarn.agent.decisions import Mandate
from forewarn.agent.hooks import HookFinder
from forewarn.agent.performer import DryPerformer, Performer, RealPerformer, Result
from forewarn.agent.settings import AgentSettings, Surroundings
from forewarn.agent.status import Status
from forewarn.client import Change, Client, ClosedError, RefusedError, UnavailableError
from forewarn.protocol.document import Event
from forewarn.protocol.identity import Identity
from forewarn.systemd import SystemdNotifier

LONGEST_SLEEP: Final = 20.0
LONGEST_PAUSE: Final = 3.0
"""How long a server that refuses is left alone at most: an event may be announced 30 s before."""

_PATIENCE: Final = 5.0
"""For how long an approval is tried again at once; after that, `ask_again` says when."""

_log = logging.getLogger("forewarn.agent")


class Stop:
    """Somebody wants the agent to end."""


InboxItem: TypeAlias = Change | Looked | Result | Stop
Inbox: TypeAlias = SimpleQueue[InboxItem]


def make_inbox() -> Inbox:
    """Return a queue that is empty."""
    return SimpleQueue()


def compose_agent(
    settings: AgentSettings,
    me: Identity,
    cases: Cases,
    memory: Memory,
    performer: Performer,
    finder: HookFinder,
) -> Agent:
    """Return an agent for the machine *me* that goes on with *cases*."""
    mandate = Mandate(
        me=me,
        approval=settings.approval,
        timeout=settings.timeout,
        postpone=settings.postpone,
        ask_again=settings.ask_again.total_seconds(),
        rules=settings.rules,
    )
    return Agent(
        mandate=mandate, find_hooks=finder.find, cases=cases, memory=memory, performer=performer
    )


def make_performer(
    client: Client, surroundings: Surroundings, inbox: Inbox, *, is_dry: bool
) -> Performer:
    """Return who does what the agent decides, or only says so."""
    if is_dry:
        return DryPerformer(inbox.put)

    def connect() -> Client:
        return Client(client.endpoint, patience=_PATIENCE)

    return RealPerformer(connect, surroundings.variables, inbox.put)


def run_agent(agent: Agent, inbox: Inbox, status: Status, notifier: SystemdNotifier) -> None:
    """Take what comes, until there is a Stop and the hooks that are running have ended.

    A second Stop does not wait for hooks.
    """
    stops, longest = 0, min(LONGEST_SLEEP, notifier.interval or inf)
    while stops == 0 or (stops == 1 and agent.is_running):
        now = read_clock()
        status.heartbeat = now.steady
        if inbox.empty():  # what came at once is decided on, and approved, at once
            agent.act(now, may_begin=not stops)
        status.note_cases(agent.cases, now.wall.timestamp())
        status.hooks = agent.outcomes
        notifier.tell("WATCHDOG=1")
        try:
            news = inbox.get(timeout=_time_to_sleep(agent, now.steady, longest))
        except Empty:
            continue
        if isinstance(news, Stop):
            stops += 1
            notifier.tell("STOPPING=1")
            _log.info("stopping hooks_running=%s", agent.is_running)
        else:
            agent.take(news, read_clock())


def settle_agent(agent: Agent, inbox: Inbox) -> bool:
    """Take what there is, do what is due, and what that leads to, until nothing is under way.

    Return whether it came to that: a Stop is for this what it is for `run_agent`.
    """
    stops = 0
    agent.act(now := read_clock())
    while stops < 2 and (agent.is_running if stops else agent.is_busy or not inbox.empty()):
        with contextlib.suppress(Empty):
            news = inbox.get(timeout=_time_to_sleep(agent, now.steady))
            if isinstance(news, Stop):
                stops += 1
                _log.info("stopping hooks_running=%s", agent.is_running)
            else:
                agent.take(news, read_clock())
        agent.act(now := read_clock(), may_begin=not stops)
    return not stops


def watch(
    client: Client, find_known: Callable[[], tuple[Event, ...]], inbox: Inbox, status: Status
) -> None:
    """Put every change into *inbox*, and that we have looked, until the client is closed."""
    pause = 0.5
    while True:
        polls = status.polls
        try:
            _follow(client, find_known(), inbox, status)
        except UnavailableError as error:  # which the client has logged
            status.note_trouble(error.trouble)
        except RefusedError as error:
            # It may end when the other side is upgraded, or configured better.
            if status.trouble != str(error):
                _log.error("watch_refused error=%s", error)
            status.note_trouble(str(error))
        except ClosedError:
            return
        except Exception:  # noqa: BLE001 - to end here would leave the machine without a watch
            _log.exception("watch_failed")
            status.note_trouble("internal error in the agent; see its log")
        else:
            return
        pause = 1.0 if status.polls > polls else min(2 * pause, LONGEST_PAUSE)
        time.sleep(pause)


def _follow(client: Client, known: tuple[Event, ...], inbox: Inbox, status: Status) -> None:
    status.events = {event.event_id: event for event in known}
    for change in client.changes(known):
        status.note_change(change)
        inbox.put(change)
    inbox.put(Looked())
    for change in client.watch(status.events.values(), observe=status.note_poll):
        status.note_change(change)
        inbox.put(change)


def take_signals(inbox: Inbox) -> None:
    """Let SIGTERM and Ctrl-C be a Stop."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        inbox.put(Stop())

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)


def _time_to_sleep(agent: Agent, steady: float, longest: float = LONGEST_SLEEP) -> float:
    return min(longest, max(agent.next_moment() - steady, 0.01))
