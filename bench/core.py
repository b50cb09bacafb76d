"""Figures of the pure core: how long a document, a POST body and a decision take.

Each figure stands beside a peer measured in the same run: what the standard library's json needs
for the same bytes, or the same work on a tenth of the fleet.
"""

import gc
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import count
from statistics import median
from time import perf_counter

from smoke import new_parser, run, sized

from forewarn.domain.aftermath import apply_actions
from forewarn.domain.amending import build_topology
from forewarn.domain.decisions import decide
from forewarn.domain.maintenance import Maintenance, plan_errors, remaining_steps
from forewarn.domain.names import MaintenanceId, VmName
from forewarn.domain.snapshot import Snapshot
from forewarn.domain.topology import DeliveryScope, ScopeKind, Topology, VirtualMachine
from forewarn.protocol.document import Document, Event, decode_document, encode_document
from forewarn.protocol.start_requests import decode_start_requests, encode_start_requests
from forewarn.protocol.versions import NEWEST
from forewarn.protocol.vocabulary import EventSource, EventStatus, EventType, event_id

NOW = datetime(2026, 1, 5, 8, tzinfo=UTC)
ID = event_id("602D9444-D2CD-49C7-8624-8643E7171297")
UPDATE_DOMAINS = 5
SET_SIZE = 20
SMALL, LARGE = sized((50, 500), smoke=(2, 20))
SECONDS = sized(0.2, smoke=0.01)


def main() -> None:
    new_parser(__doc__).parse_args()
    document = Document(document_incarnation=7, events=tuple(_event(i) for i in range(3)))
    body = encode_document(document, NEWEST)
    content = json.loads(body)
    post = encode_start_requests([ID])
    print(f"{'what':<48}{'time':>12}{'peer':>12}  ratio")
    _row(
        "encode a document of 3 events | json.dumps",
        lambda: encode_document(document, NEWEST),
        lambda: json.dumps(content, separators=(",", ":")).encode(),
    )
    _row(
        "decode a document of 3 events | json.loads",
        lambda: decode_document(body),
        lambda: json.loads(body),
    )
    _row(
        "decode a StartRequest | json.loads",
        lambda: decode_start_requests(post),
        lambda: json.loads(post),
    )
    small, large = _fleet(SMALL), _fleet(LARGE)
    _row(
        f"plan {LARGE * SET_SIZE:,} VMs | {SMALL * SET_SIZE:,} VMs",
        lambda: _plan(_everything(large), large),
        lambda: _plan(_everything(small), small),
    )
    busy, calm = _under_way(large), _under_way(small)
    _row(
        f"decide on {LARGE} scopes under way | {SMALL} scopes",
        lambda: decide(busy, NOW),
        lambda: decide(calm, NOW),
    )


def _plan(maintenance: Maintenance, topology: Topology) -> tuple[object, ...]:
    steps = remaining_steps(maintenance, topology, events=())
    return (*steps, *plan_errors(maintenance, topology, steps))


def _row(what: str, run: Callable[[], object], peer: Callable[[], object]) -> None:
    times: list[tuple[float, float]] = [(_time(run), _time(peer)) for _ in range(5)]
    ours, theirs = median(pair[0] for pair in times), median(pair[1] for pair in times)
    print(f"{what:<48}{ours * 1e6:>10.1f}µs{theirs * 1e6:>10.1f}µs  {ours / theirs:.2f}")


def _time(run: Callable[[], object]) -> float:
    gc.collect()
    repeats, start = 0, perf_counter()
    while perf_counter() - start < SECONDS:
        run()
        repeats += 1
    return (perf_counter() - start) / repeats


def _event(number: int) -> Event:
    return Event(
        event_id=ID,
        event_status=EventStatus.SCHEDULED,
        event_type=EventType.REBOOT,
        resources=(f"web-{number}",),
        not_before=NOW + timedelta(minutes=15),
        description="Host server is undergoing maintenance.",
        event_source=EventSource.PLATFORM,
    )


def _fleet(scopes: int) -> Topology:
    sets = [
        DeliveryScope(
            kind=ScopeKind.AVAILABILITY_SET, name=f"set-{i}", update_domains=UPDATE_DOMAINS
        )
        for i in range(scopes)
    ]
    vms = [
        VirtualMachine(
            name=VmName(f"vm-{one.name}-{i}"),
            scope_id=one.scope_id,
            update_domain=i % UPDATE_DOMAINS,
        )
        for one in sets
        for i in range(SET_SIZE)
    ]
    return build_topology(scopes=sets, virtual_machines=vms)


def _everything(topology: Topology) -> Maintenance:
    return Maintenance(
        maintenance_id=MaintenanceId("os"),
        event_type=EventType.FREEZE,
        started_at=NOW,
        resources=tuple(topology.virtual_machines),
    )


def _under_way(topology: Topology) -> Snapshot:
    maintenance = _everything(topology)
    snapshot = Snapshot(topology=topology, maintenances={maintenance.maintenance_id: maintenance})
    ids = (event_id(f"{i:032x}") for i in count())
    return apply_actions(snapshot, decide(snapshot, NOW).actions, now=NOW, event_ids=ids)


if __name__ == "__main__":
    run(main)
