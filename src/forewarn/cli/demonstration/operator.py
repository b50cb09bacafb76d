"""The operator of the demo: starts the roll-out and looks at it, over the control API."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import httpx2
from pydantic import TypeAdapter

from forewarn.cli.demonstration.picture import DemoTurn
from forewarn.cli.errors import CommandError, ExitCode
from forewarn.domain.event import ScheduledEvent
from forewarn.domain.names import HostName, ScopeId
from forewarn.domain.standing import MaintenanceStatus
from forewarn.protocol.vocabulary import EventId, EventType

_EVENTS: Final = TypeAdapter(tuple[ScheduledEvent, ...])
_UNDER_WAY: Final = {
    MaintenanceStatus.RUNNING,
    MaintenanceStatus.WAITING,
    MaintenanceStatus.PAUSED,
    MaintenanceStatus.ABORTING,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RollOut:
    """Where a Maintenance is; one without an id is still to be begun, and not under way."""

    maintenance_id: str = ""
    status: MaintenanceStatus = MaintenanceStatus.COMPLETED
    events: tuple[ScheduledEvent, ...] = ()
    turns: tuple[DemoTurn, ...] = ()

    @property
    def is_under_way(self) -> bool:
        return self.status in _UNDER_WAY


class Operator:
    """Somebody with the admin token."""

    def __init__(self, client: httpx2.AsyncClient) -> None:
        self._client = client

    async def begin(self, event_type: EventType, hosts: Sequence[HostName]) -> RollOut:
        """Begin a Maintenance of *hosts*."""
        order = {"event_type": event_type, "hosts": list(hosts), "at_once": len(hosts)}
        return _read_roll_out(await self._ask("POST", "maintenances", json=order))

    async def follow(self, roll_out: RollOut) -> RollOut:
        """Return where it is now."""
        return _read_roll_out(await self._ask("GET", f"maintenances/{roll_out.maintenance_id}"))

    async def events_in_flight(self) -> tuple[ScheduledEvent, ...]:
        """Return what is announced or going on."""
        answer = await self._ask("GET", "events")
        return _EVENTS.validate_python(answer["events"])

    async def find(self, event_id: EventId) -> ScheduledEvent:
        """Return one event, whatever has become of it."""
        (event,) = _EVENTS.validate_python([await self._ask("GET", f"events/{event_id}")])
        return event

    async def _ask(self, method: str, path: str, **request: Any) -> Any:
        try:
            answer = await self._client.request(method, f"/api/v1/{path}", **request)
        except httpx2.TransportError as error:
            message = f"The server of the demo does not answer: {error!r}."
            raise CommandError(message, code=ExitCode.UNREACHABLE) from error
        if answer.is_success:
            return answer.json()
        raise CommandError(
            f"The server of the demo refuses: {answer.json().get('detail', answer.status_code)}",
            code=ExitCode.FAILED,
        )


def _read_roll_out(answer: Any) -> RollOut:
    return RollOut(
        maintenance_id=answer["maintenance_id"],
        status=MaintenanceStatus(answer["status"]),
        events=_EVENTS.validate_python(answer["events"]),
        turns=tuple(
            DemoTurn(
                host=HostName(step["host"]),
                scope_ids=frozenset(ScopeId(share["scope_id"]) for share in step["shares"]),
            )
            for step in answer["remaining"]
        ),
    )
