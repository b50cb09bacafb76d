"""What a server does about a database that is a backup, before it serves anybody.

A backup lies behind what was really done and shown. So nothing that virtual machines, executors and
targets have seen since may come again with another meaning: incarnations and the lease epoch jump
ahead, and nothing begins until somebody has looked.
"""

from dataclasses import replace
from typing import Final

from forewarn.domain.publication import republish
from forewarn.operations.context import Context
from forewarn.operations.incarnations import start_above
from forewarn.operations.pausing import pause_server
from forewarn.operations.recording import record_audit
from forewarn.ports.store import HISTORY_RETENTION, Transaction

BACKUP_TAKEN_AT: Final = "backup_taken_at"
"""The setting of a database that is a backup which no server has been started on."""
RESTORED_AT: Final = "restored_at"
"""The setting that says when a server was last started on a backup."""
RECORDS_LOST_AT: Final = "records_lost_at"
"""The setting that says when records of tasks were last found missing."""
_SERVER: Final = "server"
"""Who pauses a server that was started on a backup."""
AHEAD: Final = 1_000_000
"""More incarnations and epochs than a server uses between a backup and its restoration."""


def take_over_backup(tx: Transaction, context: Context) -> bool:
    """Make a backup the database of a server, paused; tell whether it was one."""
    taken_at = tx.setting(BACKUP_TAKEN_AT)
    if not taken_at:
        return False
    for scope_id, document in tx.documents().items():
        above = document.document_incarnation + AHEAD
        tx.put_document(scope_id, republish(document, above=above), at=context.now)
    # Whoever came after the backup is not known any more, and may come again.
    start_above(tx, AHEAD)
    tx.put_setting(BACKUP_TAKEN_AT, "")
    # All of it may be older than what is kept; until the server continues, nothing can be deleted.
    tx.put_setting(HISTORY_RETENTION, "")
    tx.put_setting(RESTORED_AT, context.at.isoformat())
    if context.rules.is_shared:
        # A replica that the backup does not know may have begun tasks that it knows as reserved.
        tx.put_setting(RECORDS_LOST_AT, context.at.isoformat())
    detail = f"the database is a backup from {taken_at}"
    pause_server(tx, replace(context, who=_SERVER), detail)
    record_audit(tx, context, "db restore", "database", detail=detail)
    return True
