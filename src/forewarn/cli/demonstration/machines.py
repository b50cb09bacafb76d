"""Simulated virtual machines: each polls, drains and approves over HTTP, with the SDK."""

import asyncio
from typing import Final

from forewarn.cli.demonstration.fleet import Behaviour, DemoMachine
from forewarn.cli.demonstration.picture import Doing
from forewarn.client import AsyncClient, Change, ChangeKind, Event, EventId

_PAUSE_AFTER_TROUBLE: Final = 1.0


def answer(member: DemoMachine, change: Change) -> Doing | None:
    """Return what *member* does about *change*: nothing any more, once the event has ended."""
    if change.kind is ChangeKind.STARTED:
        return Doing.IN_IMPACT
    if change.kind is not ChangeKind.SCHEDULED:
        return None
    if member.behaviour is Behaviour.NEVER:
        return Doing.SILENT
    is_led = member.behaviour is Behaviour.LEADER and change.event.resources[0] != member.name
    return Doing.NOT_LEADING if is_led else Doing.DRAINING


class Machine:
    """One virtual machine: it watches its document, and does what its behaviour says."""

    def __init__(self, member: DemoMachine, endpoint: str, *, speed: float) -> None:
        self.member = member
        self.doings: dict[EventId, Doing] = {}
        self.trouble = ""
        self.watching = asyncio.Event()
        self._endpoint = endpoint
        self._drain = member.drain / speed
        self._drains: dict[EventId, asyncio.Task[None]] = {}

    async def live(self) -> None:
        """Watch until canceled, whatever happens."""
        while True:
            try:
                await self._watch()
            except Exception as error:  # noqa: BLE001 - the others go on, and everybody is told
                self.trouble = _root(error)
                self.doings.clear()
                self._drains.clear()
            await asyncio.sleep(_PAUSE_AFTER_TROUBLE)

    async def _watch(self) -> None:
        async with AsyncClient(self._endpoint) as client, asyncio.TaskGroup() as group:
            me = await client.whoami()
            self.trouble = ""
            self.watching.set()
            async for change in client.watch():
                if change.event.affects(me):
                    self._react(change, client, group)

    def _react(self, change: Change, client: AsyncClient, group: asyncio.TaskGroup) -> None:
        event = change.event
        earlier = self._drains.pop(event.event_id, None)
        if earlier is not None:
            earlier.cancel()
        doing = answer(self.member, change)
        if doing is None:
            self.doings.pop(event.event_id, None)
            return
        self.doings[event.event_id] = doing
        if doing is Doing.DRAINING:
            draining = self._drain_and_approve(client, event)
            self._drains[event.event_id] = group.create_task(draining)

    async def _drain_and_approve(self, client: AsyncClient, event: Event) -> None:
        await asyncio.sleep(self._drain.total_seconds())
        await client.approve(event)


def _root(error: Exception) -> str:
    """Return what was wrong, out of the groups it comes in."""
    cause: BaseException = error
    while isinstance(cause, BaseExceptionGroup):
        cause = cause.exceptions[0]
    return str(cause) or type(cause).__name__
