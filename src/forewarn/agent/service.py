"""`forewarn-agent run`: the agent as a service."""

import gc
import logging
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Final

from forewarn.agent.clock import read_clock
from forewarn.agent.loop import (
    compose_agent,
    make_inbox,
    make_performer,
    run_agent,
    take_signals,
    watch,
)
from forewarn.agent.settings import AgentSettings
from forewarn.agent.startup import (
    DONE,
    ask_identity,
    concluded,
    guess_identity,
    make_client,
    make_finder,
    prepare,
)
from forewarn.agent.state import StateFile
from forewarn.agent.status import Status
from forewarn.client import Client, RefusedError, UnavailableError
from forewarn.protocol.identity import Identity
from forewarn.systemd import SystemdNotifier

IDENTITY_SECONDS: Final = 3.0
"""When to ask again who we are."""
MOST_TRIES: Final = 3
"""How often a server that answers other questions is asked who we are."""

_PATIENCE: Final = 10.0
"""Questions that nobody answers must not take so long that the agent counts as dead."""
_IDENTITY_TIMEOUT: Final = 3.0
_IDENTITY_PATIENCE: Final = 2.0
"""A Preempt is announced half a minute before, and it takes a name to know that it means us."""

_log = logging.getLogger("forewarn.agent")


@concluded
def run(file: Path | None, *, is_dry: bool) -> int:
    """Follow events until stopped, and return what the process ends with."""
    settings, surroundings = prepare(file)
    status = Status()
    notifier = SystemdNotifier(surroundings.notify_socket, surroundings.watchdog_seconds)
    inbox = make_inbox()
    gc.enable()
    gc.freeze()  # what was imported is never garbage, and a process for years should not look at it
    with StateFile(settings.state_dir, is_dry=is_dry) as state:
        cases, finder = state.load(), make_finder(settings, state)
        # Before anybody can ask: what was drained stays so, however long the server is away.
        status.restore(cases)
        if settings.listen is not None and not is_dry:  # the port may be the real agent's
            from forewarn.agent.listener import start_listener

            start_listener(settings.listen, status)
        notifier.tell("READY=1")
        hasty = make_client(settings, patience=_IDENTITY_PATIENCE, timeout=_IDENTITY_TIMEOUT)
        with hasty:
            me = wait_for_identity(settings, hasty, state, status, notifier)
        found = replace(settings, endpoint=hasty.endpoint)
        with make_client(found, patience=_PATIENCE) as client:
            _log.info("agent_runs name=%s server=%s dry_run=%s", me.name, client.endpoint, is_dry)
            performer = make_performer(client, surroundings, inbox, is_dry=is_dry)
            agent = compose_agent(settings, me, cases, state, performer, finder)
            take_signals(inbox)
            watching = (client, lambda: agent.events, inbox, status)
            threading.Thread(target=watch, args=watching, daemon=True).start()
            run_agent(agent, inbox, status, notifier)
    return DONE


def wait_for_identity(
    settings: AgentSettings,
    client: Client,
    state: StateFile,
    status: Status,
    notifier: SystemdNotifier,
) -> Identity:
    """Return who this machine is, however long the server takes to come up.

    One that answers, but not this, is asked a few times: what we take for our name here holds until
    the agent ends.
    """
    tries = 0
    while tries < MOST_TRIES:
        if tries or status.troubles:
            time.sleep(IDENTITY_SECONDS)
        status.heartbeat = read_clock().steady
        notifier.tell("WATCHDOG=1")
        try:
            return ask_identity(settings, client, state)
        except UnavailableError as error:  # which the client has logged
            status.note_trouble(error.trouble)
            tries += _is_answering(client)
        except RefusedError as error:
            _log.error("identity_refused error=%s", error)
            status.note_trouble(str(error))
            tries += 1
    return guess_identity(state)


def _is_answering(client: Client) -> bool:
    try:
        client.document()
    except UnavailableError:
        return False
    except RefusedError:
        pass  # which is an answer
    return True
