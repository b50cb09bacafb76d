"""A program on asyncio. The emulator is in a thread of its own and does not hold up the loop."""

import asyncio

from async_app import consume

from forewarn.testing import Emulator

SECONDS = 5


def test_message_under_way_goes_back_before_the_eviction(scheduled_events: Emulator) -> None:
    spot = scheduled_events.vm("web-0")
    has_begun = asyncio.Event()

    async def handle(_message: str) -> None:
        has_begun.set()
        await asyncio.sleep(3600)

    async def scenario() -> asyncio.Queue[str]:
        messages = asyncio.Queue[str]()
        messages.put_nowait("resize cat.jpg")
        async with asyncio.timeout(SECONDS), asyncio.TaskGroup() as tasks:
            consuming = tasks.create_task(consume(messages, handle, spot.url))
            await has_begun.wait()
            eviction = spot.preempt()
            await scheduled_events.until.approved(eviction)
            assert await consuming == eviction.event_id
        return messages

    assert asyncio.run(scenario()).get_nowait() == "resize cat.jpg"


def test_pause_of_nine_seconds_disturbs_nobody(scheduled_events: Emulator) -> None:
    spot = scheduled_events.vm("web-0")
    handled: list[str] = []

    async def handle(message: str) -> None:
        handled.append(message)

    async def scenario() -> None:
        messages = asyncio.Queue[str]()
        freeze = spot.freeze(duration=9)
        async with asyncio.timeout(SECONDS), asyncio.TaskGroup() as tasks:
            consuming = tasks.create_task(consume(messages, handle, spot.url))
            scheduled_events.clock.advance(minutes=15)
            messages.put_nowait("resize cat.jpg")
            spot.preempt()
            await consuming
        freeze.assert_status("Started")
        freeze.assert_not_approved()

    asyncio.run(scenario())

    assert handled == ["resize cat.jpg"]
