"""`forewarn replica`: the servers that share a database."""

from typing import Annotated, Final

from forewarn.cli.arguments import replica_names
from forewarn.cli.catalogue import noun
from forewarn.cli.options import YES, argument
from forewarn.cli.output import Columns, Row, print_line, short_node, table_of, wall_time_of
from forewarn.cli.session import Session, command

app = noun("replica")

_COLUMNS: Final[Columns] = {
    "replica": "name",
    "leader": lambda replica: "yes" if replica["is_leader"] else "no",
    "present": lambda replica: "yes" if replica["is_present"] else "no",
    "seen": lambda replica: wall_time_of(replica["seen_at"]),
    "version": "version",
    "address": "address",
    "node": short_node,
}


@command(app, "list")
def list_all(session: Session) -> None:
    """List the replicas, and which of them leads.

    NODE is the beginning of the id of a state directory: a replica that has lost its
    state directory is a new node.

    Example: forewarn replica list
    """
    session.show(session.get("server"), table_of("replicas", _COLUMNS))


@command(app, "hand-over")
def hand_over(session: Session) -> None:
    """Let another replica lead before you stop the leader.

    Send it to the leader. Scripts that the leader has begun are still running, and it
    still reports how they end.

    Example: forewarn replica hand-over --server https://db-1:8170
    """
    answer = session.post("server", "replicas", "hand-over", takes_key=False)
    session.show(
        answer,
        lambda old: print_line(
            f"{old['name']} has handed over; another replica leads within seconds"
        ),
    )


@command(app, "forget", YES)
def forget(
    session: Session,
    name: Annotated[str, argument("NAME", "Name of the replica.", autocompletion=replica_names)],
) -> None:
    """Stop waiting for a replica that never comes back.

    First make sure that its machine is off. The tasks that it has begun become unknown,
    and can then be settled, even if a script is still running there.

    Example: forewarn replica forget db-1 --yes
    """
    for task in session.get("tasks", owner=name)["tasks"]:
        on = f" on {task['host']}" if task["host"] else ""
        print_line(f"{task['task_id']}{on}: {task['state']}", err=True)
    session.confirm(f"Forget {name}? Make sure that its machine is off.")
    answer = session.post("server", "replicas", "forget", body={"name": name}, takes_key=False)

    def print_forgotten(answer: Row) -> None:
        print_line(f"{name} is forgotten")
        for task_id in answer["tasks"]:
            print_line(f"{task_id} is unknown; settle it when you know how it ended")

    session.show(answer, print_forgotten)
