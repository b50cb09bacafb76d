"""Runs the handlers of ai4s-jobq as they are and writes down what they tell."""

import asyncio
import importlib
import sys
from dataclasses import astuple
from typing import Any

scheduled_events = importlib.import_module("ai4s.jobq.scheduled_events")


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


async def main() -> None:
    shutdown = asyncio.Event()

    async def tell(events: list[Any]) -> None:
        say(f"events: {[astuple(event) for event in events]}")
        say("shutdown wanted" if shutdown.is_set() else "no shutdown wanted")

    async with (
        scheduled_events.ScheduledEventHandler(tell),
        scheduled_events.PreemptionEventHandler(shutdown),
    ):
        await asyncio.Event().wait()


asyncio.run(main())
