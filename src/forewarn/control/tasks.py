"""/tasks: what is done outside and is not over, and an operator's word for what is unknown."""

from datetime import datetime
from typing import Annotated, Any, Literal, Self

from fastapi import APIRouter, Query
from pydantic import Field, model_validator

from forewarn.control.bodies import BodyRoute
from forewarn.control.caller import Operating, Viewing
from forewarn.control.routes import CAN_BE_DRY, Key
from forewarn.desk.schemas import RequestModel, View
from forewarn.domain.names import MaintenanceId
from forewarn.domain.task import TaskState
from forewarn.operations.tasks import TaskReport, TaskSelection, find_tasks, settle_selected

router = APIRouter(prefix="/tasks", tags=["tasks"], route_class=BodyRoute)


class TaskView(View):
    """A task that is not over: an impact, or a part of the work on a host. Times are real times."""

    task_id: str
    state: TaskState
    runner: str
    owner: str = Field(description="The replica, the host or the operator that carries it out.")
    owner_away_since: datetime | None
    vm: str | None
    host: str | None
    maintenance_id: MaintenanceId | None
    reserved_at: datetime
    begun_at: datetime | None
    times_out_at: datetime | None
    reason: str
    can_settle: bool = Field(description="Whether `task settle` ends it.")


class TasksView(View):
    """Every task that is not over, in the order of reservation."""

    tasks: tuple[TaskView, ...]


class SettleRequest(RequestModel):
    """How tasks ended: those that are named, or all that can be settled and fit what is given."""

    outcome: Literal["done", "failed"]
    task_ids: Annotated[tuple[str, ...], Field(fail_fast=True)] = ()
    host: str | None = None
    maintenance_id: str | None = None
    owner: str | None = None

    @model_validator(mode="after")
    def _check_selection(self) -> Self:
        if not (self.task_ids or self.host or self.maintenance_id or self.owner):
            raise ValueError("give task_ids, host, maintenance_id or owner")
        return self


class SettledTaskView(View):
    """A task that an operator has settled."""

    task_id: str
    state: TaskState


class SettledView(View):
    """The tasks that were settled."""

    tasks: tuple[SettledTaskView, ...]


@router.get("")
def list_tasks(
    caller: Viewing,
    host: Annotated[str | None, Query(description="Only tasks on this host.")] = None,
    maintenance_id: Annotated[
        str | None, Query(description="Only tasks of this Maintenance.")
    ] = None,
    owner: Annotated[str | None, Query(description="Only tasks of this replica or host.")] = None,
) -> TasksView:
    """Return every task that is not over, and the replica that carries it out."""
    selection = TaskSelection(
        host=host, maintenance_id=maintenance_id and maintenance_id.lower(), owner=owner
    )
    context = caller.context()
    found = caller.read(lambda reading: find_tasks(reading, context, selection))
    return TasksView(tasks=tuple(TaskView(**_describe(each)) for each in found))


@router.post("/settle", name="task settle", dependencies=CAN_BE_DRY)
def settle(caller: Operating, key: Key, request: SettleRequest) -> SettledView:
    """Say how unknown tasks ended. A task that may still be running is refused."""
    selection = TaskSelection(
        task_ids=request.task_ids,
        host=request.host,
        maintenance_id=request.maintenance_id and request.maintenance_id.lower(),
        owner=request.owner,
    )
    return caller.write_once(
        key,
        SettledView,
        lambda tx, context: SettledView(
            tasks=tuple(
                SettledTaskView(task_id=task.task_id, state=task.state)
                for task in settle_selected(
                    tx, context, selection, is_done=request.outcome == "done"
                )
            )
        ),
    )


def _describe(report: TaskReport) -> dict[str, Any]:
    task = report.task
    return {
        "task_id": task.task_id,
        "state": task.state,
        "runner": task.runner,
        "owner": report.owner,
        "owner_away_since": report.away_since,
        "vm": task.vm,
        "host": task.host,
        "maintenance_id": report.maintenance_id,
        "reserved_at": task.reserved_at,
        "begun_at": task.begun_at,
        "times_out_at": task.times_out_at,
        "reason": report.reason,
        "can_settle": report.can_settle,
    }
