"""A consumer of a queue that gives its messages back before its machine goes away."""

import asyncio
from collections.abc import Awaitable, Callable

from forewarn.client import AsyncClient, ChangeKind, EventType

Handle = Callable[[str], Awaitable[None]]

LETHAL = {EventType.PREEMPT, EventType.TERMINATE}


async def consume(messages: asyncio.Queue[str], handle: Handle, metadata: str | None = None) -> str:
    """Handle messages until this machine is to be evicted or deleted; return the EventId."""
    async with AsyncClient(metadata) as client, asyncio.TaskGroup() as tasks:
        consumer = tasks.create_task(_take(messages, handle))
        me = await client.whoami()
        async for change in client.watch():
            event = change.event
            if event.event_type not in LETHAL or not event.affects(me):
                continue
            if change.kind in {ChangeKind.SCHEDULED, ChangeKind.STARTED}:
                consumer.cancel()  # the message under way goes back to the queue
                await asyncio.wait([consumer])
                await client.approve(event)
                return event.event_id
        raise RuntimeError("The watch has ended.")


async def _take(messages: asyncio.Queue[str], handle: Handle) -> None:
    while True:
        message = await messages.get()
        try:
            await handle(message)
        except asyncio.CancelledError:
            messages.put_nowait(message)
            raise
