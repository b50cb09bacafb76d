"""The course of the demo: the fleet comes up, a roll-out goes through it, somebody watches."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import httpx2
from pydantic import TypeAdapter

from forewarn.cli.demonstration.audience import Audience
from forewarn.cli.demonstration.fleet import HOSTS, MEMBERS
from forewarn.cli.demonstration.machines import Machine
from forewarn.cli.demonstration.narration import Line, summarize, tell
from forewarn.cli.demonstration.picture import Picture
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
_SIGN_INS: Final = "audit?action=console%20sign%20in&limit=1"
_EVENTS: Final = TypeAdapter(tuple[ScheduledEvent, ...])


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoStage:
    """Where the server of the demo is, and what to suggest when the roll-out is over."""

    metadata: str
    control: str
    token: str
    speed: float
    suggestions: Sequence[str]


async def perform_until_interrupted(
    stage: DemoStage, audience: Audience, signals: StopSignals
) -> None:
    """Show the demo to *audience*, to the end or to Ctrl-C."""
    async with asyncio.TaskGroup() as group:
        performing = group.create_task(_perform(stage, audience))
        signals.hand_to(lambda _: performing.cancel())


async def _perform(stage: DemoStage, audience: Audience) -> None:
    machines = [
        Machine(member, f"{stage.metadata}/vm/{member.name}", speed=stage.speed)
        for member in MEMBERS
    ]
    headers = {"Authorization": f"Bearer {stage.token}"}
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
    while operator.is_under_way:
        await asyncio.sleep(_LOOK_EVERY)
        await operator.look()
    operator.say(summarize(operator.rolled_out, operator.now() - began_at))
    if operator.audience.stays:
        operator.audience.be_told(stage.suggestions)
    while operator.audience.stays:
        await operator.look()
        await asyncio.sleep(_LOOK_EVERY)


class _Operator:
    """Somebody with the admin token, who looks at everything, and tells the audience."""

    def __init__(
        self, client: httpx2.AsyncClient, machines: Sequence[Machine], audience: Audience
    ) -> None:
        self.audience = audience
        self.now = SystemClock().now
        self._roll_out: dict[str, Any] = {}
        self._client = client
        self._machines = machines
        self._picture = Picture(now=self.now())
        self._sign_ins: Any = None
        self._link_ends = self.now()

    @property
    def is_under_way(self) -> bool:
        status = MaintenanceStatus(self._roll_out["status"])
        return status in NOT_OVER and status is not MaintenanceStatus.HELD

    @property
    def rolled_out(self) -> tuple[ScheduledEvent, ...]:
        return _EVENTS.validate_python(self._roll_out.get("events", ()))

    def say(self, *texts: str) -> None:
        """Say what no picture shows."""
        self.audience.hear(Line(at=self.now(), text=text) for text in texts)

    async def begin_roll_out(self) -> None:
        """Begin to maintain every host."""
        order = {"event_type": _IMPACT, "hosts": HOSTS, "at_once": len(HOSTS)}
        self._roll_out = await self._ask("POST", "maintenances", json=order)

    async def look(self) -> None:
        """Take a new picture, and show what is new in it."""
        before, self._picture = self._picture, await self._take_picture()
        self.audience.hear(tell(before, self._picture))
        if self.audience.stays or self._sign_ins is None:
            await self._offer_link()

    async def _offer_link(self) -> None:
        """Show how to get to the console, with a new link once one was used or has expired."""
        sign_ins = await self._ask("GET", _SIGN_INS)
        if sign_ins == self._sign_ins and self.now() < self._link_ends:
            return
        link = await self._ask("POST", "sign-in-links")
        self._sign_ins, self._link_ends = sign_ins, datetime.fromisoformat(link["expires_at"])
        url = f"{self._client.base_url}/login#{link['code']}"
        if self.audience.stays:
            self.audience.keep_in_sight(url)
        else:
            self.say(f"Open the console with this link, once and within 10 minutes: {url}")

    async def _take_picture(self) -> Picture:
        if self._roll_out:
            path = f"maintenances/{self._roll_out['maintenance_id']}"
            self._roll_out = await self._ask("GET", path)
        in_flight = _EVENTS.validate_python((await self._ask("GET", "events"))["events"])
        found = {event.event_id: event for event in (*in_flight, *self.rolled_out)}
        for name, known in self._picture.events.items():
            if name not in found:
                found[name] = known
                if known.ended_at is None:
                    ended = await self._ask("GET", f"events/{name}")
                    (found[name],) = _EVENTS.validate_python([ended])
        machines = {machine.member.name: machine for machine in self._machines}
        return Picture(
            now=self.now(),
            events=found,
            turns={
                HostName(step["host"]): frozenset(
                    ScopeId(one["scope_id"]) for one in step["shares"]
                )
                for step in self._roll_out.get("remaining", ())
            },
            doings={name: {**machine.doings} for name, machine in machines.items()},
            troubles={name: each.trouble for name, each in machines.items() if each.trouble},
        )

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
