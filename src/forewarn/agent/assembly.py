"""Put an agent together."""

from typing import Final

from forewarn.agent.agent import Agent, Memory
from forewarn.agent.cases import Cases
from forewarn.agent.decisions import Mandate
from forewarn.agent.hooks import HookFinder
from forewarn.agent.loop import Inbox
from forewarn.agent.performer import DryPerformer, Performer, RealPerformer
from forewarn.agent.settings import AgentSettings, Surroundings
from forewarn.client import Client
from forewarn.protocol.identity import Identity

_PATIENCE: Final = 5.0
"""For how long an approval is tried again at once; after that, `ask_again` says when."""


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
