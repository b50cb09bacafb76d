"""What other replicas change: a notification wakes, the numbers in the database are the truth."""

import socket
import threading
from selectors import EVENT_READ, DefaultSelector
from typing import Any, Final

import psycopg
import structlog

from forewarn.storage.changes import ChangeListeners
from forewarn.storage.postgres_changes import CHANNEL, last_change, read_changes
from forewarn.storage.postgres_session import PostgresAddress

_log = structlog.get_logger(__name__)

_LOOK_SECONDS: Final = 1.0
"""How long a change stays unseen at most whose notification was lost."""


class ChangeFollower:
    """A thread that tells the listeners what others have committed.

    It looks whenever it is notified, connects again, or has heard nothing for a second. So what is
    missed in between, it finds then.
    """

    def __init__(self, address: PostgresAddress, listeners: ChangeListeners) -> None:
        self._address = address
        self._listeners = listeners
        self._waker, self._alarm = socket.socketpair()
        self._is_stopping = False
        self.is_following = False
        """Whether the database was there when it was last looked at."""
        self._thread = threading.Thread(target=self._run, name="forewarn-follower", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop and wait for it."""
        self._is_stopping = True
        self._waker.send(b"!")
        self._thread.join()
        self._waker.close()
        self._alarm.close()

    def _run(self) -> None:
        while not self._is_stopping:
            try:
                with self._address.connect() as connection:
                    self._follow(connection)
            except Exception as error:  # noqa: BLE001 - it goes on, however long it takes
                self._note(str(error))
                self._wait(self._alarm)

    def _follow(self, connection: psycopg.Connection[Any]) -> None:
        connection.execute(f"LISTEN {CHANNEL}")
        while not self._is_stopping:
            # In this order, or what the writer tells meanwhile would make the database look older.
            told = self._listeners.last
            last = last_change(connection)
            if last != told:
                self._listeners.tell(read_changes(connection, told, last))
            self._note(None)
            # What was notified meanwhile has come with the answers, and would wake nobody.
            if not any(connection.notifies(timeout=0)):
                self._wait(connection, self._alarm)

    def _wait(self, *those: Any) -> None:
        # Not select(): it cannot wait for a file whose number is 1024 or more.
        with DefaultSelector() as selector:
            for each in those:
                selector.register(each, EVENT_READ)
            selector.select(_LOOK_SECONDS)

    def _note(self, problem: str | None) -> None:
        if problem is not None and self.is_following:
            _log.warning("changes_not_followed", database=str(self._address), problem=problem)
        elif problem is None and not self.is_following:
            _log.info("changes_followed", database=str(self._address))
        self.is_following = problem is None
