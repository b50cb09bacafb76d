"""Work that is done once a second, and once more at the end."""

from collections.abc import Callable
from threading import Event


def take_turns(work: Callable[[], None], stopping: Event, *, seconds: float = 1) -> None:
    """Do *work* every so many *seconds* until *stopping*, and then what is left of it."""
    while not stopping.wait(seconds):
        work()
    work()
