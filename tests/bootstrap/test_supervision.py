"""Loops that die, and are started again."""

import threading
from collections.abc import Callable

from structlog.testing import capture_logs

from forewarn.bootstrap.supervision import Supervisor

LONG = 30


class Stumbling:
    """Dies of something nobody expected, a few times; then it goes on until it is stopped."""

    def __init__(self, deaths: int) -> None:
        self.deaths = deaths
        self.is_up = threading.Event()
        self.has_died = threading.Event()
        self._stopping = threading.Event()

    def run(self) -> None:
        if self.deaths:
            self.deaths -= 1
            self.has_died.set()
            raise LookupError("nobody expected this")
        self.is_up.set()
        self._stopping.wait()

    def stop(self) -> None:
        self._stopping.set()


def test_loop_that_dies_is_logged_counted_and_started_again() -> None:
    supervisor, loop = Supervisor(first_pause=0.01), Stumbling(3)

    with capture_logs() as lines:
        thread = supervisor.start("upkeep", loop)
        assert loop.is_up.wait(LONG)

    assert supervisor.failures == {"upkeep": 3}
    assert supervisor.failing == ()
    assert [(line["event"], line["loop"], line["exc_info"]) for line in lines] == [
        ("loop_failed", "upkeep", True)
    ] * 3
    assert [line["again_after"] for line in lines] == [0.01, 0.02, 0.04]
    thread.stop()
    thread.join()


def test_loop_that_waits_to_be_started_again_is_failing_and_can_be_stopped() -> None:
    supervisor, loop = Supervisor(first_pause=LONG), Stumbling(1)
    thread = supervisor.start("upkeep", loop)
    assert loop.has_died.wait(LONG)
    _until(lambda: supervisor.failing == ("upkeep",))

    thread.stop()
    thread.join()

    assert supervisor.failing == ()
    assert not loop.is_up.is_set()


def test_loop_that_returns_is_not_started_again() -> None:
    supervisor, loop, ended = Supervisor(), Stumbling(0), threading.Event()
    loop.stop()

    supervisor.start("upkeep", loop, ended=ended.set).join()

    assert ended.is_set()
    assert supervisor.failures == {"upkeep": 0}


def test_loop_that_takes_too_long_to_end_is_left_behind() -> None:
    supervisor, release = Supervisor(), threading.Event()

    class Busy:
        def run(self) -> None:
            release.wait()

        def stop(self) -> None: ...

    thread = supervisor.start("courier-ops", Busy(), patience=0.01)
    thread.stop()
    thread.join()
    release.set()


def _until(is_so: Callable[[], bool]) -> None:
    for _ in range(LONG * 100):
        if is_so():
            return
        threading.Event().wait(0.01)
    raise AssertionError
