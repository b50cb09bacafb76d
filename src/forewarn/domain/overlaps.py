"""What a Maintenance has in common with others that are not over, as when it is begun twice."""

from collections.abc import Iterator, Sequence
from datetime import datetime

from forewarn.domain.maintenance import Maintenance, Step
from forewarn.domain.snapshot import Snapshot
from forewarn.domain.standing import MaintenanceStatus
from forewarn.domain.walk import status
from forewarn.domain.wording import count_of


def find_overlaps(
    maintenance: Maintenance, steps: Sequence[Step], snapshot: Snapshot, now: datetime
) -> Iterator[str]:
    """Warn of each other Maintenance that hosts, or scopes, of *steps* are part of as well."""
    noun = "host" if maintenance.hosts else "scope"
    for other in snapshot.maintenances.values():
        if other.is_aborted or other.maintenance_id == maintenance.maintenance_id:
            continue
        places = len(_shared_places(steps, other, snapshot))
        if places:
            is_held = status(other, snapshot, now) is MaintenanceStatus.HELD
            yield (
                f"{count_of(places, noun)} {'is' if places == 1 else 'are'} also part of "
                f"Maintenance {other.maintenance_id}, which is "
                f"{'held' if is_held else 'not over'}."
            )


def _shared_places(steps: Sequence[Step], other: Maintenance, snapshot: Snapshot) -> set[str]:
    hosts = set(other.hosts)
    vms = {*other.resources} or {
        vm.name for vm in snapshot.topology.virtual_machines.values() if vm.host in hosts
    }
    return {
        step.place
        for step in steps
        if step.host in hosts or any(not vms.isdisjoint(share.resources) for share in step.shares)
    }
