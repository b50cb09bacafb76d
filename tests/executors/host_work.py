"""Tasks of a host operation, and workers on hosts that remember in a folder."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from tests.executors.conftest import ask_often
from tests.web_site import OUTBOUND

from forewarn.bootstrap.order_records import HOST_ORDERS, OrderRecords
from forewarn.clocks import SystemClock
from forewarn.domain.host_work import HostTask, HostTaskKind, HostWorkRule
from forewarn.domain.names import HostName, MaintenanceId, OperationId, VmName
from forewarn.domain.topology import Host
from forewarn.executors.command import SCRIPTS, Command
from forewarn.executors.fetched import FetchedByHost, OfferContractor
from forewarn.executors.host_tasks import (
    HOST_TASKS,
    ContractedHostWorker,
    HostWork,
    find_for_host,
)
from forewarn.executors.processes import PLACES, ProcessContractor
from forewarn.executors.records import Records
from forewarn.executors.targets import ImpactTarget
from forewarn.executors.webhook import WebhookContractor
from forewarn.ports.store import Store
from forewarn.protocol.vocabulary import EventType

WORK = HostTask(
    operation_id=OperationId("9F6D1B52-6E70-4E36-8C5A-6B4C8C4E7D10"),
    maintenance_id=MaintenanceId("kernel"),
    event_type=EventType.REBOOT,
    host=HostName("kvm-0"),
    kind=HostTaskKind.WORK,
)
TASKS = (
    WORK,
    replace(WORK, kind=HostTaskKind.VERIFY),
    replace(WORK, kind=HostTaskKind.VERIFY, attempt=2),
    replace(WORK, kind=HostTaskKind.RETURN, vm=VmName("web-0")),
    replace(WORK, kind=HostTaskKind.RETURN, vm=VmName("web-1")),
    replace(WORK, operation_id=OperationId("0A3B3C65-93C3-4B84-9D1B-5B19C5C3C7E5")),
)
RULE = HostWorkRule(hosts=("kvm-*",), has_verify=True, has_return=True)


def host_work(means: Command | ImpactTarget | FetchedByHost, rule: HostWorkRule = RULE) -> HostWork:
    """Return work that does every task by the same *means*."""
    return HostWork(rule=rule, means=dict.fromkeys(HostTaskKind, means))


def make_host_worker(
    folder: Path,
    *works: HostWork,
    labels: Mapping[str, str] | None = None,
    places: int = PLACES,
    store: Store | None = None,
) -> ContractedHostWorker:
    """Return a worker that remembers in *folder*, and can use commands and webhooks.

    With a *store* it knows who leads, and what others have reserved, and hosts can fetch from it.
    """
    plain = Records(folder / "host-work")
    own = OrderRecords(HOST_ORDERS, folder, store) if store else None

    def host_of(name: HostName) -> Host:
        return Host(name=name, labels=labels or {})

    scripts = ProcessContractor(
        find_for_host(works, host_of, Command),
        SCRIPTS,
        kind=HOST_TASKS,
        records=own.for_scripts() if own else plain,
        environment={"PATH": "/usr/bin:/bin"},
        clock=SystemClock(),
        places=places,
    )
    webhooks = WebhookContractor(
        find_for_host(works, host_of, ImpactTarget),
        kind=HOST_TASKS,
        records=own.for_webhooks() if own else plain,
        outbound=OUTBOUND,
        clock=SystemClock(),
        wall=SystemClock(),
        wait=ask_often,
    )
    if store is None:
        return ContractedHostWorker(works, (scripts, webhooks))
    offers = OfferContractor(
        find_for_host(works, host_of, FetchedByHost),
        store=store,
        clock=SystemClock(),
        wall=SystemClock(),
    )
    return ContractedHostWorker(works, (scripts, webhooks, offers))
