"""Work on a host itself, done while the virtual machines it carries are out of the way.

The work of a host operation is begun once, when the impact on every virtual machine is done. It is
over when the check that the host is back has succeeded, within *verify_within*. Then each virtual
machine is given back, where the operator has said how.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import TypeAlias

from forewarn.domain.names import HostName, MaintenanceId, OperationId, VmName, is_meant
from forewarn.domain.topology import Host
from forewarn.protocol.vocabulary import EventId, EventType


class HostTaskKind(StrEnum):
    """What is done on or for a host during its operation, in this order."""

    WORK = "work"
    VERIFY = "verify"
    RETURN = "return"


@dataclass(frozen=True, slots=True, kw_only=True)
class HostTask:
    """One thing to do for a host operation, at most once.

    Verifying is tried again until it succeeds, each time as the next *attempt*. Returning is for
    one *vm*.
    """

    operation_id: OperationId
    maintenance_id: MaintenanceId
    event_type: EventType
    host: HostName
    kind: HostTaskKind
    attempt: int = 1
    vm: VmName | None = None

    @property
    def name(self) -> str:
        """What tells it from the other tasks of its operation."""
        which = {
            HostTaskKind.WORK: "",
            HostTaskKind.VERIFY: f"-{self.attempt}",
            HostTaskKind.RETURN: f"-{self.vm}",
        }
        return f"{self.kind}{which[self.kind]}"


def key_of(about: "Undertaking") -> tuple[str, str]:
    """Return the key of the task that *about* is."""
    if isinstance(about, HostTask):
        return about.operation_id, about.name
    return about


Undertaking: TypeAlias = tuple[EventId, VmName] | HostTask
"""What is begun at most once: the impact of an event on a virtual machine, or a task on a host."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostWorkRule:
    """Which hosts have work of their own, and what follows it.

    It is for hosts called one of *hosts*, which may be patterns, and that carry all of *labels*.
    """

    hosts: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    has_verify: bool = False
    verify_within: timedelta = timedelta(minutes=15)
    verify_every: timedelta = timedelta(seconds=10)
    has_return: bool = False

    def fits(self, host: Host) -> bool:
        """Tell whether it is for *host*."""
        return is_meant(host.name, self.hosts) and self.labels.items() <= host.labels.items()


def work_for(rules: Iterable[HostWorkRule], host: Host) -> HostWorkRule | None:
    """Return the first of *rules* that is for *host*."""
    return next((rule for rule in rules if rule.fits(host)), None)
