"""Pausing the whole server, and letting it continue. A restart does not end the pause."""

import json
from dataclasses import replace
from datetime import datetime
from typing import Final

from forewarn.domain.host_operation import leave_out
from forewarn.domain.server_pause import ServerPause
from forewarn.domain.task import FETCHED, TaskState
from forewarn.operations.context import Context
from forewarn.operations.recording import record_audit
from forewarn.ports.store import SERVER_PAUSE, Reading, Transaction

_SUBJECT: Final = "server"


def find_pause(reading: Reading) -> ServerPause | None:
    """Return the pause of the server, if it is paused."""
    stored = reading.setting(SERVER_PAUSE)
    if not stored:
        return None
    known = json.loads(stored)
    return ServerPause(
        who=known["who"], since=datetime.fromisoformat(known["since"]), reason=known["reason"]
    )


def pause_server(tx: Transaction, context: Context, reason: str = "") -> ServerPause:
    """Begin nothing from now on. A server that is paused already keeps its first pause."""
    if (known := find_pause(tx)) is not None:
        return known
    stored = {"who": context.who, "since": context.now.isoformat(), "reason": reason}
    tx.put_setting(SERVER_PAUSE, json.dumps(stored))
    record_audit(tx, context, "pause", _SUBJECT, detail=reason)
    return ServerPause(who=context.who, since=context.now, reason=reason)


def resume_server(tx: Transaction, context: Context) -> None:
    """Continue, with all that fell due during the pause; do nothing if there is none."""
    pause = find_pause(tx)
    if pause is None:
        return
    tx.put_setting(SERVER_PAUSE, "")
    record_audit(tx, context, "resume", _SUBJECT)
    for operation in tx.operations_under_way():
        resumed = leave_out(operation, pause, context.now)
        if resumed != operation:
            tx.put_operation(resumed)
    for task in tx.tasks():
        if task.runner == FETCHED and task.state is TaskState.RESERVED:
            # Its host could not fetch it, and gets the whole time again.
            tx.put_task(replace(task, reserved_at=context.at))
