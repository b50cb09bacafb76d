"""Event loops for requests that have one deadline for all of it, looking names up included."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def new_loop() -> asyncio.AbstractEventLoop:
    """Return a loop on which a time-out ends whatever it is about, and that closes at once.

    The time-outs of a blocking client begin anew with every byte that drips in.
    """
    loop = asyncio.new_event_loop()
    loop.set_default_executor(_Lookups())
    return loop


class _Lookups(ThreadPoolExecutor):
    """Where names are looked up: on daemons, for which nobody waits."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        done: Future[T] = Future()

        def run() -> None:
            try:
                done.set_result(fn(*args, **kwargs))
            except Exception as error:  # noqa: BLE001 - it is raised again where it is waited for
                done.set_exception(error)

        # From here on it cannot be canceled, only left alone.
        done.set_running_or_notify_cancel()
        threading.Thread(target=run, name="lookup", daemon=True).start()
        return done
