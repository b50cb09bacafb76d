import asyncio
from threading import Thread

from forewarn.desk.bell import Bell, has_rung


def test_bell_wakes_everybody_who_listens_from_any_thread() -> None:
    async def listen() -> list[bool]:
        bell = Bell()
        news = [bell.listen() for _ in range(3)]
        Thread(target=bell.ring).start()
        return await asyncio.gather(*(has_rung(each, 10) for each in news))

    assert asyncio.run(listen()) == [True, True, True]


def test_bell_that_rings_between_listening_and_waiting_is_heard() -> None:
    async def listen() -> tuple[bool, bool]:
        bell = Bell()
        news = bell.listen()
        bell.ring()
        return await has_rung(news, 10), await has_rung(bell.listen(), 0.01)

    assert asyncio.run(listen()) == (True, False)


def test_bell_rings_a_last_time_when_it_is_stopped() -> None:
    async def listen() -> bool:
        bell = Bell()
        news = bell.listen()
        bell.stop()
        return await has_rung(news, 10) and bell.is_stopped

    assert asyncio.run(listen())


def test_bell_without_listeners_or_after_their_loop_rings_for_nobody() -> None:
    bell = Bell()
    bell.ring()

    async def listen() -> None:
        bell.listen()

    asyncio.run(listen())
    bell.ring()

    assert not bell.is_stopped
