import asyncio
from time import monotonic

from forewarn.console.pulse import GAP, Pulse


def test_beats_begin_at_once_and_tell_of_each_change() -> None:
    async def listen() -> tuple[list[int], float]:
        pulse = Pulse()
        beats = pulse.beats()
        heard = [await anext(beats)]
        began = monotonic()
        pulse.touch()
        pulse.touch()
        heard.append(await anext(beats))
        return heard, monotonic() - began

    heard, took = asyncio.run(listen())

    assert heard == [0, 2]
    assert took >= GAP


def test_heart_beats_though_nothing_has_changed() -> None:
    async def listen() -> list[int]:
        beats = Pulse(heart_beat=0.01).beats()
        return [await anext(beats), await anext(beats)]

    assert asyncio.run(listen()) == [0, 0]


def test_beats_end_when_the_pulse_stops() -> None:
    async def listen() -> list[int]:
        pulse = Pulse()
        heard = []
        async for version in pulse.beats():
            heard.append(version)
            pulse.stop()
        return heard + [version async for version in pulse.beats()]

    assert asyncio.run(listen()) == [0]
