"""Simulated virtual machines, which answer events with the SDK, and the users of their services."""

import asyncio
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from enum import IntEnum
from itertools import count
from typing import Final

from forewarn.cli.demonstration.fleet import Behaviour, DemoMachine
from forewarn.cli.own_server import LOCALHOST
from forewarn.client import AsyncClient, Change, ChangeKind, Event, EventId

_ANSWER: Final = b"HTTP/1.0 204 No Content\r\n"
_REQUEST_EVERY, _LOST_AFTER = 0.04, 1.5


class DemoState(IntEnum):
    """What a virtual machine does; of several events, the one furthest down this list counts."""

    SERVING = 0
    SILENT = 1
    DRAINING = 2
    APPROVED = 3
    FROZEN = 4
    OFFLINE = 5


_STATES: Final = {
    **{(ChangeKind.SCHEDULED, each): DemoState.DRAINING for each in Behaviour},
    **{(ChangeKind.STARTED, each): DemoState.FROZEN for each in Behaviour},
    (ChangeKind.SCHEDULED, Behaviour.SILENT): DemoState.SILENT,
}
"""What an event makes of a machine; once the event has ended, the machine serves."""


class Machine:
    """One virtual machine: it watches its document, and answers requests unless it is frozen."""

    def __init__(self, member: DemoMachine, endpoint: str, speed: float) -> None:
        self.member = member
        self.endpoint = endpoint
        self.watching = asyncio.Event()
        self._drain = member.drain / speed
        self._states: dict[EventId, DemoState] = {}
        self._drains: dict[EventId, asyncio.Task[None]] = {}
        self._running = asyncio.Event()
        self._in_flight = 0
        self._port = 0

    @property
    def state(self) -> DemoState:
        if not self.watching.is_set():
            return DemoState.OFFLINE
        return max(self._states.values(), default=DemoState.SERVING)

    @property
    def takes_requests(self) -> bool:
        """Whether its load balancer may send it requests: who drains says no until it is back."""
        return self.member.behaviour is not Behaviour.DRAINS or not any(self._states.values())

    async def live(self) -> None:
        """Watch and serve until canceled, whatever happens."""
        async with await asyncio.start_server(self._serve, LOCALHOST, 0) as server:
            self._port = server.sockets[0].getsockname()[1]
            try:
                while True:
                    with suppress(Exception):  # of all kinds, if a fault outlasts the SDK
                        await self._watch()
                    self.watching.clear()
                    await asyncio.sleep(1)
            finally:
                self._running.set()  # closing waits for all who wait for an answer

    async def get(self) -> bool:
        """Send it a request, as its load balancer does, and tell whether it was answered."""
        self._in_flight += 1
        try:
            async with asyncio.timeout(_LOST_AFTER):
                reader, writer = await asyncio.open_connection(LOCALHOST, self._port)
                with closing(writer):
                    writer.write(b"GET / HTTP/1.0\r\n\r\n")
                    return await reader.readline() == _ANSWER
        except (TimeoutError, OSError):
            return False
        finally:
            self._in_flight -= 1

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            await reader.readline()
            await self._running.wait()
            writer.write(_ANSWER + b"\r\n")
            writer.close()

    async def _watch(self) -> None:
        self._states, self._drains = {}, {}
        self._running.set()
        async with AsyncClient(self.endpoint) as client, asyncio.TaskGroup() as group:
            me = await client.whoami()
            self.watching.set()
            async for change in client.watch():
                if change.event.affects(me):
                    self._react(change, client, group)

    def _react(self, change: Change, client: AsyncClient, group: asyncio.TaskGroup) -> None:
        event = change.event
        state = _STATES.get((change.kind, self.member.behaviour), DemoState.SERVING)
        if earlier := self._drains.pop(event.event_id, None):
            earlier.cancel()
        if state is DemoState.DRAINING:
            draining = self._drain_and_approve(client, event)
            self._drains[event.event_id] = group.create_task(draining)
        self._states[event.event_id] = state
        if self.state is DemoState.FROZEN:
            self._running.clear()
        else:
            self._running.set()

    async def _drain_and_approve(self, client: AsyncClient, event: Event) -> None:
        await asyncio.sleep(self._drain.total_seconds())
        while self._in_flight and not self.takes_requests:  # noqa: ASYNC110 - for milliseconds
            await asyncio.sleep(0.01)
        await client.approve(event)
        self._states[event.event_id] = DemoState.APPROVED


@dataclass(slots=True)
class Workload:
    """A service on *machines* behind a load balancer, and what became of its users' requests."""

    name: str
    machines: Sequence[Machine]
    served: int = 0
    lost: int = 0

    async def live(self) -> None:
        """Send requests to the machines that take them, one after the other, until canceled."""
        async with asyncio.TaskGroup() as users:
            for number in count():
                ready = [each for each in self.machines if each.takes_requests] or self.machines
                users.create_task(self._send(ready[number % len(ready)]))
                await asyncio.sleep(_REQUEST_EVERY)

    async def _send(self, machine: Machine) -> None:
        is_served = await machine.get()
        self.served += is_served
        self.lost += not is_served
