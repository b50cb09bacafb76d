"""Who leads on SQLite: whoever has the lock of the database file, and so the only process."""

from forewarn.ports.store import Store


class FileLeadership:
    """A lease that nobody else can have while this process has the store open."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def campaign(self) -> int | None:
        """Return the next epoch: the lock was taken when the store was opened."""
        return self._store.write(lambda tx: tx.next_epoch())

    def renew(self, epoch: int) -> bool:
        """Tell whether *epoch* is the last one that was given."""
        return self._store.read(lambda reading: reading.lease_epoch()) == epoch

    def resign(self, epoch: int) -> None:
        """Do nothing: the lock goes when the store is closed."""
