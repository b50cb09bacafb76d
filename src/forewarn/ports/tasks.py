"""What is done outside, and the nodes that own it."""

from datetime import datetime
from typing import Protocol

from forewarn.domain.task import Owner, Task, TaskKey


class TaskReading(Protocol):
    """A look at tasks and their owners."""

    def task(self, key: TaskKey, /) -> Task | None: ...

    def tasks(self) -> tuple[Task, ...]:
        """Return the tasks that matter to decisions, in the order in which they were reserved."""

    def tasks_of(self, subject: str) -> tuple[Task, ...]:
        """Return all tasks of an event or a host operation."""

    def open_tasks(self, node: str) -> tuple[Task, ...]:
        """Return the tasks of *node* that are not over."""

    def settled_tasks(self, node: str) -> tuple[Task, ...]:
        """Return the tasks of *node* that an operator has settled in its absence."""

    def owners(self) -> tuple[Owner, ...]:
        """Return the state directories that can own tasks."""


class TaskWriting(TaskReading, Protocol):
    """A look at tasks and their owners that may also change them."""

    def put_task(self, task: Task, /) -> None: ...

    def prune_tasks(self, *, before: datetime) -> int:
        """Forget tasks that matter to no decision since before then; tell how many those were."""

    def put_owner(self, owner: Owner) -> None: ...

    def remove_owner(self, node: str) -> None: ...
