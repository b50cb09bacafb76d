"""Tasks and their owners for tests of the control API, written down as a server would."""

from datetime import datetime, timedelta
from typing import Any, Final

from tests.http.conftest import MORNING

from forewarn.domain.host_operation import HostOperation, HostPhase
from forewarn.domain.impact import Impact, ImpactStatus
from forewarn.domain.names import HostName, MaintenanceId, OperationId, VmName
from forewarn.domain.task import BY_HAND, MANUAL, Owner, Task, TaskState
from forewarn.ports.store import Store
from forewarn.protocol.vocabulary import EventType

NODE: Final = "db-9:0123456789abcdef0123456789abcdef"
"""A replica called db-9, which is not the one that answers."""
_SAID: Final = {
    TaskState.RESERVED: Impact(status=ImpactStatus.NOT_BEGUN),
    TaskState.BEGUN: Impact(status=ImpactStatus.RUNNING),
    TaskState.UNKNOWN: Impact(status=ImpactStatus.UNKNOWN, reason="db-9 is away"),
    TaskState.ENDED: Impact(status=ImpactStatus.DONE),
}


def put_owner(store: Store, *, heard_at: datetime = MORNING - timedelta(hours=1)) -> None:
    """Have db-9 own tasks; it has been away for an hour unless it was *heard_at* another time."""
    owner = Owner(node=NODE, name="db-9", generation=1, heard_at=heard_at)
    store.write(lambda tx: tx.put_owner(owner))


def put_impact(store: Store, event_id: str, vm: str, state: TaskState, **more: Any) -> None:
    """Have db-9 own the impact of an event on *vm*."""
    _put(store, event_id, vm, state, vm=VmName(vm), **more)


def put_host_task(
    store: Store, operation_id: str, name: str, host: str, state: TaskState, **more: Any
) -> None:
    """Have db-9 own a part of the work on *host*."""
    _put(store, operation_id, name, state, host=HostName(host), **more)


def put_work(store: Store, maintenance_id: str, host: str) -> None:
    """Have the state of the work on *host* be unknown since db-9 has been away."""
    operation = HostOperation(
        operation_id=OperationId("o-1"),
        maintenance_id=MaintenanceId(maintenance_id),
        event_type=EventType.FREEZE,
        host=HostName(host),
        created_at=MORNING,
        phase=HostPhase.WORK,
    )
    store.write(lambda tx: tx.put_operation(operation))
    put_owner(store)
    put_host_task(store, "o-1", "work", host, TaskState.UNKNOWN)


def put_by_hand(store: Store, event_id: str, vm: str) -> None:
    """Have an operator do the impact of an event on *vm*."""
    put_impact(store, event_id, vm, TaskState.BEGUN, runner=MANUAL, said=BY_HAND)


def _put(store: Store, subject: str, name: str, state: TaskState, **more: Any) -> None:
    task = Task(
        subject=subject,
        name=name,
        state=state,
        node=NODE,
        epoch=1,
        reserved_at=MORNING,
        begun_at=None if state is TaskState.RESERVED else MORNING,
        **{"runner": "command", "said": _SAID[state], **more},
    )
    store.write(lambda tx: tx.put_task(task))
