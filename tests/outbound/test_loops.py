"""Loops on which a deadline is one."""

import asyncio
import socket
import threading
import time

import pytest

from forewarn.outbound.loops import new_loop


def test_slow_lookup_keeps_nobody_waiting_beyond_the_deadline() -> None:
    answered = threading.Event()

    async def look_up() -> None:
        async with asyncio.timeout(0.1):
            await asyncio.get_running_loop().run_in_executor(None, answered.wait, 10)

    began = time.monotonic()
    with pytest.raises(TimeoutError), asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(look_up())
    took = time.monotonic() - began
    answered.set()

    assert took < 5


def test_names_are_looked_up_or_not_found() -> None:
    async def look_up(port: str) -> object:
        found = await asyncio.get_running_loop().getaddrinfo("127.0.0.1", port)
        return found[0][4][1]

    with asyncio.Runner(loop_factory=new_loop) as runner:
        assert runner.run(look_up("80")) == 80
        with pytest.raises(socket.gaierror):
            runner.run(look_up("no-such-service"))
