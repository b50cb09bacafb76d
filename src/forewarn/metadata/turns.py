"""Work that is done once a second, and once more at the end."""

from collections.abc import Callable
from threading import Event


def take_turns(work: Callable[[], None], stopping: Event) -> None:
    """Do *work* every second until *stopping*, and then what is left of it."""
    while not stopping.wait(1):
        work()
    work()
