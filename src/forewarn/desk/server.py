"""The server itself: its replicas, and whether it begins anything."""

from datetime import datetime, timedelta

import forewarn
from forewarn.desk.caller import Caller
from forewarn.desk.schemas import View
from forewarn.domain.errors import ConflictError, says
from forewarn.domain.finding import Finding
from forewarn.domain.roles import Role
from forewarn.domain.server_pause import ServerPause
from forewarn.domain.standing import MaintenanceStatus
from forewarn.operations import pausing
from forewarn.operations.findings import examine_server
from forewarn.operations.recording import record_audit
from forewarn.ports.replicas import KnownReplica, Replicas, RollCall


class ServerView(View):
    """The server. While it is paused, it serves requests but starts nothing."""

    version: str
    is_paused: bool
    paused_since: datetime | None
    paused_by: str
    pause_reason: str


class ReplicaView(View):
    """A server process on the database, as of its last report. Its node is its state directory.

    At that time it had not yet received `changes_behind` committed changes, the oldest of them
    `lag_in_milliseconds` old. A replica that is not present has crashed or hangs.
    """

    name: str
    node: str
    address: str
    version: str
    settings: dict[str, str]
    started_at: datetime
    seen_at: datetime
    changes_behind: int
    lag_in_milliseconds: int
    is_present: bool
    is_leader: bool
    is_answering: bool


class MaintenanceStateView(View):
    """The status of a Maintenance that has not ended."""

    maintenance_id: str
    status: MaintenanceStatus
    status_text: str


class ServerStatusView(ServerView):
    """The server with all its replicas, the Maintenances that have not ended, and all findings.

    Times of replicas are from the database's clock. `role` is that of the token of the request.
    """

    database: str
    database_time: datetime
    lease_epoch: int
    replicas: list[ReplicaView]
    maintenances: list[MaintenanceStateView]
    findings: tuple[Finding, ...]
    role: Role


def server_status(caller: Caller) -> ServerStatusView:
    """Return how the server and its replicas are."""
    pause = caller.read(pausing.find_pause)
    roll, figures = caller.services.replicas.call_roll(), caller.services.store.figures()
    context, has_all = caller.context(), not caller.principal.scopes
    states, findings = caller.read(
        lambda reading: examine_server(reading, context, roll, figures, has_all_scopes=has_all)
    )
    return ServerStatusView(
        **_view(pause).model_dump(),
        database=caller.services.database,
        database_time=roll.at,
        lease_epoch=roll.epoch,
        replicas=[_replica(each, roll, caller.services.replicas) for each in roll.replicas],
        maintenances=[
            MaintenanceStateView(maintenance_id=key, status=state.status, status_text=state.text)
            for key, state in states.items()
        ],
        findings=findings,
        role=caller.principal.role,
    )


def pause_server(caller: Caller, reason: str) -> ServerView:
    """Begin nothing until resumed. What begins at this moment, on any replica, still does."""
    found = caller.write(lambda tx, context: pausing.pause_server(tx, context, reason))
    caller.services.finish_turn()
    return _view(found)


def resume_server(caller: Caller) -> ServerView:
    """Continue, with all that fell due in the meantime."""
    caller.write(pausing.resume_server)
    return _view(None)


@says("{problem}")
class HandOverRefusedError(ConflictError):
    """A replica that cannot hand over."""

    problem: str


def hand_over(caller: Caller) -> str:
    """Let another replica lead, and return the name of this one; it still reports its tasks."""
    replicas = caller.services.replicas
    roll = replicas.call_roll()
    leader = next((each.identity for each in roll.replicas if each.is_leader), None)
    if leader is None or leader.replica_id != replicas.itself.replica_id:
        known = (
            f"Replica {leader.name} at {leader.address} leads; send the request there."
            if leader
            else "No replica leads at the moment; try again."
        )
        raise HandOverRefusedError(f"This replica does not lead. {known}")
    if len(roll.present) == 1:
        raise HandOverRefusedError("There is no other replica that could lead.")
    caller.write(lambda tx, context: record_audit(tx, context, "replica hand-over", leader.name))
    caller.services.hand_over()
    return leader.name


def _replica(known: KnownReplica, roll: RollCall, replicas: Replicas) -> ReplicaView:
    return ReplicaView(
        name=known.identity.name,
        node=known.identity.node,
        address=known.identity.address,
        version=known.identity.version,
        settings=dict(known.identity.settings),
        started_at=known.started_at,
        seen_at=known.seen_at,
        changes_behind=known.changes_behind,
        lag_in_milliseconds=known.lag // timedelta(milliseconds=1),
        is_present=known in roll.present,
        is_leader=known.is_leader,
        is_answering=known.identity.replica_id == replicas.itself.replica_id,
    )


def _view(pause: ServerPause | None) -> ServerView:
    return ServerView(
        version=forewarn.__version__,
        is_paused=pause is not None,
        paused_since=pause.since if pause else None,
        paused_by=pause.who if pause else "",
        pause_reason=pause.reason if pause else "",
    )
