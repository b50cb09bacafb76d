"""The course of the demo: the fleet comes up, a roll-out goes through it, somebody watches."""

import asyncio
import signal
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import httpx2

from forewarn.cli.demonstration.fleet import HOSTS, MEMBERS
from forewarn.cli.demonstration.machines import Machine
from forewarn.cli.demonstration.narration import Line, summarize, tell
from forewarn.cli.demonstration.operator import Operator, RollOut
from forewarn.cli.demonstration.picture import Picture
from forewarn.cli.demonstration.screen import Audience
from forewarn.cli.signals import StopSignals
from forewarn.clocks import SystemClock
from forewarn.domain.event import ScheduledEvent
from forewarn.protocol.vocabulary import EventId, EventType

_IMPACT: Final = EventType.FREEZE
_READY_WITHIN: Final = 10.0
_ANSWER_WITHIN: Final = 60.0
_LOOK_EVERY: Final = 0.2
_PAUSE_MINUTES: Final = 2
_LONGEST_PAUSE: Final = 2.0


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
            observer = _Observer(Operator(client), machines, audience)
            await _follow(stage, observer)
            for life in living:
                life.cancel()


async def _follow(stage: DemoStage, observer: "_Observer") -> None:
    fleet = f"{len(MEMBERS)} virtual machines on {len(HOSTS)} hosts"
    observer.say(
        f"{fleet} poll {stage.metadata} with the SDK.",
        f"Speed {stage.speed:g}: a minute of notice, drain or impact is {60 / stage.speed:.3g} s.",
    )
    await observer.look()
    await asyncio.sleep(min(_LONGEST_PAUSE, _PAUSE_MINUTES * 60 / stage.speed))
    began_at = observer.now()
    observer.say(
        f"An operator types: forewarn maintenance start --type {_IMPACT} "
        + " ".join(f"--host {host}" for host in HOSTS)
    )
    await observer.begin_roll_out()
    while observer.roll_out.is_under_way:
        await asyncio.sleep(_LOOK_EVERY)
        await observer.look()
    observer.say(summarize(observer.roll_out.events, observer.now() - began_at))
    if observer.audience.stays:
        observer.audience.be_told(stage.suggestions)
        while True:
            await observer.look()
            await asyncio.sleep(_LOOK_EVERY)


class _Observer:
    """Looks at the server and the machines again and again, and tells the audience."""

    def __init__(self, operator: Operator, machines: Sequence[Machine], audience: Audience) -> None:
        self.audience = audience
        self.now = SystemClock().now
        self._operator = operator
        self._machines = machines
        self.roll_out = RollOut()
        self._picture = Picture(now=self.now())

    def say(self, *texts: str) -> None:
        """Say what no picture shows."""
        self.audience.hear(Line(at=self.now(), text=text) for text in texts)

    async def begin_roll_out(self) -> None:
        """Begin to maintain every host, as an operator would."""
        self.roll_out = await self._operator.begin(_IMPACT, HOSTS)

    async def look(self) -> None:
        """Take a new picture, and show what is new in it."""
        before, self._picture = self._picture, await self._take(self._picture.events.keys())
        self.audience.hear(tell(before, self._picture))
        self.audience.see(self._picture)

    async def _take(self, known: Iterable[EventId]) -> Picture:
        if self.roll_out.maintenance_id:
            self.roll_out = await self._operator.follow(self.roll_out)
        found = {event.event_id: event for event in await self._operator.events_in_flight()}
        found |= {event.event_id: event for event in self.roll_out.events}
        for event_id in known:
            if event_id not in found:
                found[event_id] = await self._find(event_id)
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

    async def _find(self, event_id: EventId) -> ScheduledEvent:
        known = self._picture.events[event_id]
        return known if known.ended_at else await self._operator.find(event_id)
