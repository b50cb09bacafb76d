"""Simulated virtual machines: each polls, drains and approves over HTTP, with the SDK."""

import asyncio
from collections.abc import Callable
from datetime import datetime
from typing import Final

from forewarn.cli.demonstration.fleet import Behaviour, DemoMachine
from forewarn.cli.demonstration.picture import Activity, Doing
from forewarn.client import AsyncClient, Change, ChangeKind, Event, EventId

_PAUSE_AFTER_TROUBLE: Final = 1.0


def answer(member: DemoMachine, change: Change, drained_at: datetime) -> Activity | None:
    """Return what *member* does about *change*: nothing any more, once the event has ended."""
    match change.kind:
        case ChangeKind.SCHEDULED:
            return _answer_announcement(member, change.event, drained_at)
        case ChangeKind.STARTED:
            return Activity(doing=Doing.IN_IMPACT)
        case ChangeKind.COMPLETED | ChangeKind.CANCELED | ChangeKind.GONE:
            return None


def _answer_announcement(member: DemoMachine, event: Event, drained_at: datetime) -> Activity:
    if member.behaviour is Behaviour.NEVER:
        return Activity(doing=Doing.SILENT, until=event.not_before)
    if member.behaviour is Behaviour.LEADER and event.resources[0] != member.name:
        return Activity(doing=Doing.NOT_LEADING)
    return Activity(doing=Doing.DRAINING, until=drained_at)


class Machine:
    """One virtual machine: it watches its document, and does what its behaviour says."""

    def __init__(
        self, member: DemoMachine, endpoint: str, *, speed: float, now: Callable[[], datetime]
    ) -> None:
        self.member = member
        self.activities: dict[EventId, Activity] = {}
        self.trouble = ""
        self.watching = asyncio.Event()
        self._endpoint = endpoint
        self._drain = member.drain / speed
        self._now = now
        self._drains: dict[EventId, asyncio.Task[None]] = {}

    async def live(self) -> None:
        """Watch until canceled, whatever happens."""
        while True:
            try:
                await self._watch()
            except Exception as error:  # noqa: BLE001 - the others go on, and everybody is told
                self.trouble = _root(error)
                self.activities.clear()
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
        activity = answer(self.member, change, self._now() + self._drain)
        if activity is None:
            self.activities.pop(event.event_id, None)
            return
        self.activities[event.event_id] = activity
        if activity.doing is Doing.DRAINING:
            draining = self._drain_and_approve(client, event)
            self._drains[event.event_id] = group.create_task(draining)

    async def _drain_and_approve(self, client: AsyncClient, event: Event) -> None:
        await asyncio.sleep(self._drain.total_seconds())
        await client.approve(event)
        self.activities[event.event_id] = Activity(doing=Doing.APPROVED)


def _root(error: Exception) -> str:
    """Return what was wrong, out of the groups it comes in."""
    cause: BaseException = error
    while isinstance(cause, BaseExceptionGroup):
        cause = cause.exceptions[0]
    return str(cause) or type(cause).__name__
