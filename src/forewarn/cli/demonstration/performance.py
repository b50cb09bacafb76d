"""The course of the demo: the fleet comes up, a roll-out goes through it, somebody watches."""

import asyncio
import signal
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import httpx2
from pydantic import TypeAdapter

from forewarn.cli.demonstration.fleet import HOSTS, MEMBERS
from forewarn.cli.demonstration.machines import Machine
from forewarn.cli.demonstration.narration import Line, summarize, tell
from forewarn.cli.demonstration.picture import DemoTurn, Picture
from forewarn.cli.demonstration.screen import Audience
from forewarn.cli.errors import CommandError, ExitCode
from forewarn.cli.signals import StopSignals
from forewarn.clocks import SystemClock
from forewarn.domain.event import ScheduledEvent
from forewarn.domain.names import HostName, ScopeId
from forewarn.domain.standing import NOT_OVER, MaintenanceStatus
from forewarn.protocol.vocabulary import EventType

_IMPACT: Final = EventType.FREEZE
_READY_WITHIN: Final = 10.0
_ANSWER_WITHIN: Final = 60.0
_LOOK_EVERY: Final = 0.2
_PAUSE_MINUTES: Final = 2
_LONGEST_PAUSE: Final = 2.0
_EVENT: Final = TypeAdapter(ScheduledEvent)
_EVENTS: Final = TypeAdapter(tuple[ScheduledEvent, ...])


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoStage:
    """Where the server of the demo is, and what to suggest when the roll-out is over."""

    metadata: str
    control: str
    token: str
    speed: float
    suggestions: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class RollOut:
    """Where a Maintenance is; one without an id is still to be begun, and not under way."""

    maintenance_id: str = ""
    status: MaintenanceStatus = MaintenanceStatus.COMPLETED
    events: tuple[ScheduledEvent, ...] = ()
    turns: tuple[DemoTurn, ...] = ()

    @property
    def is_under_way(self) -> bool:
        return self.status in NOT_OVER and self.status is not MaintenanceStatus.HELD


async def perform_until_interrupted(
    stage: DemoStage, audience: Audience, signals: StopSignals
) -> None:
    """Show the demo to *audience*, to the end or to Ctrl-C."""
    async with asyncio.TaskGroup() as group:
        performing = group.create_task(_perform(stage, audience))
        signals.hand_to(lambda _: performing.cancel())
        with suppress(NotImplementedError):  # on Windows Ctrl-C arrives as an exception
            asyncio.get_running_loop().add_signal_handler(signal.SIGINT, performing.cancel)


async def _perform(stage: DemoStage, audience: Audience) -> None:
    now = SystemClock().now
    machines = [
        Machine(member, f"{stage.metadata}/vm/{member.name}", speed=stage.speed, now=now)
        for member in MEMBERS
    ]
    headers = {"Authorization": f"Bearer {stage.token}"}
    with audience.watching:
        async with (
            httpx2.AsyncClient(
                base_url=stage.control, headers=headers, trust_env=False, timeout=_ANSWER_WITHIN
            ) as client,
            asyncio.TaskGroup() as group,
        ):
            living = [group.create_task(machine.live()) for machine in machines]
            with suppress(TimeoutError):
                async with asyncio.timeout(_READY_WITHIN):
                    await asyncio.gather(*(machine.watching.wait() for machine in machines))
            await _follow(stage, _Operator(client, machines, audience))
            for life in living:
                life.cancel()


async def _follow(stage: DemoStage, operator: "_Operator") -> None:
    fleet = f"{len(MEMBERS)} virtual machines on {len(HOSTS)} hosts"
    operator.say(
        f"{fleet} poll {stage.metadata} with the SDK.",
        f"Speed {stage.speed:g}: a minute of notice, drain or impact is {60 / stage.speed:.3g} s.",
    )
    await operator.look()
    await asyncio.sleep(min(_LONGEST_PAUSE, _PAUSE_MINUTES * 60 / stage.speed))
    began_at = operator.now()
    operator.say(
        f"An operator types: forewarn maintenance start --type {_IMPACT} "
        + " ".join(f"--host {host}" for host in HOSTS)
    )
    await operator.begin_roll_out()
    while operator.roll_out.is_under_way:
        await asyncio.sleep(_LOOK_EVERY)
        await operator.look()
    operator.say(summarize(operator.roll_out.events, operator.now() - began_at))
    if operator.audience.stays:
        operator.audience.be_told(stage.suggestions)
        while True:
            await operator.look()
            await asyncio.sleep(_LOOK_EVERY)


class _Operator:
    """Somebody with the admin token, who looks at everything, and tells the audience."""

    def __init__(
        self, client: httpx2.AsyncClient, machines: Sequence[Machine], audience: Audience
    ) -> None:
        self.audience = audience
        self.now = SystemClock().now
        self.roll_out = RollOut()
        self._client = client
        self._machines = machines
        self._picture = Picture(now=self.now())

    def say(self, *texts: str) -> None:
        """Say what no picture shows."""
        self.audience.hear(Line(at=self.now(), text=text) for text in texts)

    async def begin_roll_out(self) -> None:
        """Begin to maintain every host."""
        order = {"event_type": _IMPACT, "hosts": HOSTS, "at_once": len(HOSTS)}
        self.roll_out = _read_roll_out(await self._ask("POST", "maintenances", json=order))

    async def look(self) -> None:
        """Take a new picture, and show what is new in it."""
        before, self._picture = self._picture, await self._take_picture()
        self.audience.hear(tell(before, self._picture))
        self.audience.see(self._picture)

    async def _take_picture(self) -> Picture:
        if name := self.roll_out.maintenance_id:
            self.roll_out = _read_roll_out(await self._ask("GET", f"maintenances/{name}"))
        in_flight = _EVENTS.validate_python((await self._ask("GET", "events"))["events"])
        found = {event.event_id: event for event in (*in_flight, *self.roll_out.events)}
        for event in self._picture.events.values():
            if event.event_id not in found:
                found[event.event_id] = event if event.ended_at else await self._find(event)
        return Picture(
            now=self.now(),
            events=found,
            turns=self.roll_out.turns,
            activities={machine.member.name: {**machine.activities} for machine in self._machines},
            troubles={
                machine.member.name: machine.trouble
                for machine in self._machines
                if machine.trouble
            },
        )

    async def _find(self, event: ScheduledEvent) -> ScheduledEvent:
        """Return *event*, whatever has become of it."""
        found = await self._ask("GET", f"events/{event.event_id}")
        return _EVENT.validate_python(found)

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
