"""Runs the handler of ai4s-jobq as it is, and the hooks of the conformance kit when it tells."""

import asyncio
import importlib
import os
import subprocess

scheduled_events = importlib.import_module("ai4s.jobq.scheduled_events")

PREPARE = os.environ["FOREWARN_CONFORMANCE_PREPARE"]
RECOVER = os.environ["FOREWARN_CONFORMANCE_RECOVER"]


async def main() -> None:
    shutdown = asyncio.Event()
    is_wanted = False
    async with scheduled_events.PreemptionEventHandler(shutdown):
        while True:
            await asyncio.sleep(0.05)
            if shutdown.is_set() is not is_wanted:
                is_wanted = not is_wanted
                subprocess.Popen([PREPARE if is_wanted else RECOVER])  # noqa: ASYNC220


asyncio.run(main())
