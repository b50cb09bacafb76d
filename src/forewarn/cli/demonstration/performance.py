"""The course of the demo: the fleet comes up, a roll-out goes through it, somebody watches."""

import asyncio
import shlex
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import httpx2
from pydantic import TypeAdapter

from forewarn.cli.demonstration.audience import Audience
from forewarn.cli.demonstration.fleet import HOST_LABEL, MEMBERS, SILENT
from forewarn.cli.demonstration.machines import Machine, Workload
from forewarn.cli.demonstration.screen import COMMAND
from forewarn.cli.demonstration.story import KEY, Line, Scene, introduce, summarize, tell
from forewarn.cli.errors import CommandError, ExitCode
from forewarn.cli.own_server import own_command
from forewarn.clocks import SystemClock
from forewarn.domain.event import ScheduledEvent
from forewarn.domain.standing import MaintenanceStatus
from forewarn.environment import ADMIN_TOKEN_FILE
from forewarn.protocol.vocabulary import EventStatus, EventType

_LOOK_EVERY, _QUIET_LOOKS = 0.2, 8
_EVENTS: Final = TypeAdapter(tuple[ScheduledEvent, ...])
_ALL_EVENTS: Final = "events?" + "&".join(f"status={status}" for status in EventStatus)
_SIGN_INS: Final = "audit?action=console%20sign%20in&limit=1"
_DOCUMENT: Final = "metadata/scheduledevents?api-version=2020-07-01"


class DemoRun:
    """An operator, who rolls a Freeze out and shows *audience* all that happens.

    The server listens at *urls* for virtual machines and operators, with its files in *folder*.
    """

    def __init__(self, urls: Sequence[str], folder: Path, audience: Audience, speed: float) -> None:
        (metadata, self._control), self._audience = urls, audience
        self._now = SystemClock().now
        self._began_at = self._link_ends = self._now()
        token = (folder / ADMIN_TOKEN_FILE).read_text(encoding="ascii").strip()
        headers = {"Authorization": f"Bearer {token}", "Metadata": "true"}
        self._client = httpx2.AsyncClient(
            base_url=f"{self._control}/api/v1/", headers=headers, trust_env=False, timeout=60
        )
        machines = [Machine(each, f"{metadata}/vm/{each.name}", speed) for each in MEMBERS.values()]
        workloads = [
            Workload(scope, [each for each in machines if each.member.scope == scope])
            for scope in ("web", "cart")
        ]
        suggestions = (
            f"  export FOREWARN_SERVER={self._control}",
            f"  export FOREWARN_STATE_DIR={shlex.quote(str(folder.absolute()))}",
            f"  {own_command()} vm restart web-0; {own_command()} event list",
            f"  {own_command()} scenario run live-migration --vm db --speed 60",
        )
        suggested = suggestions if audience.stays else ()
        self._scene = Scene(machines, workloads, self._now(), speed, suggested)
        self._maintenance, self._sign_ins = "", None

    async def give(self) -> None:
        """Bring the fleet up, roll out, and leave nothing behind."""
        scene = self._scene
        async with self._client, asyncio.TaskGroup() as group:
            living = [group.create_task(machine.live()) for machine in scene.machines]
            with suppress(TimeoutError):
                async with asyncio.timeout(10):
                    await asyncio.gather(*(each.watching.wait() for each in scene.machines))
            await self._look(scene)  # the first takes long, and users must not pay for it
            living += [group.create_task(workload.live()) for workload in scene.workloads]
            await self._roll_out(scene)
            while self._audience.stays:
                await self._look(scene)
            for life in living:
                life.cancel()

    async def _roll_out(self, scene: Scene) -> None:
        for _ in range(_QUIET_LOOKS):
            await self._look(scene)
        self._say(f"An operator types: {COMMAND}")
        began_at, order = (
            self._now(),
            {"event_type": EventType.FREEZE, "host_labels": dict([HOST_LABEL])},
        )
        begun = await self._ask("POST", "maintenances", json=order)
        self._maintenance = f"maintenances/{begun['maintenance_id']}"
        await self._look(scene)
        while scene.is_under_way:
            await self._look(scene)
        lost = ", ".join(f"{w.name} {w.lost} of {w.served + w.lost}" for w in scene.workloads)
        scene.summary = summarize(scene, self._now() - began_at)
        self._say(scene.summary, f"Requests lost: {lost}.")
        await self._look(scene)

    async def _look(self, scene: Scene) -> None:
        """Show how things are, do what the audience wants, and wait a moment."""
        await self._renew_link()
        if self._audience.has_pressed(KEY):
            with suppress(CommandError):  # it may have started meanwhile
                for event in scene.events:
                    if not event.started_at and SILENT.issuperset(event.resources):
                        await self._ask("POST", f"events/{event.event_id}/approve")
        if self._maintenance:
            scene.status = MaintenanceStatus((await self._ask("GET", self._maintenance))["status"])
        events = _EVENTS.validate_python((await self._ask("GET", _ALL_EVENTS))["events"])
        scene.events = [each for each in events if each.created_at >= self._began_at]
        try:
            url = f"{scene.reader.endpoint}/{_DOCUMENT}"
            scene.document = (await self._client.get(url, timeout=1)).text
        except httpx2.HTTPError as error:  # the audience may have set a fault
            scene.document = f"no answer: {error!r}"
        scene.now = self._now()
        self._tell(tell(scene))
        self._audience.see(scene)
        await asyncio.sleep(_LOOK_EVERY)

    def _say(self, *texts: str) -> None:
        self._tell([Line(self._now(), text) for text in texts])

    def _tell(self, lines: Sequence[Line]) -> None:
        news = [line for line in lines if line not in self._scene.story]
        self._scene.story += news
        self._audience.hear(news)

    async def _renew_link(self) -> None:
        """Have a link to the console, a new one once that was used or has expired."""
        sign_ins = await self._ask("GET", _SIGN_INS)
        if sign_ins == self._sign_ins and self._now() < self._link_ends:
            return
        link = await self._ask("POST", "sign-in-links")
        self._sign_ins, self._link_ends = sign_ins, datetime.fromisoformat(link["expires_at"])
        self._scene.link = f"{self._control}/login#{link['code']}"
        if not self._scene.story:
            self._say(f"Web console (the link works once): {self._scene.link}")
            self._say(introduce(self._scene))

    async def _ask(self, method: str, path: str, **request: Any) -> Any:
        try:
            answer = await self._client.request(method, path, **request)
            return answer.raise_for_status().json()
        except httpx2.HTTPError as error:
            message = f"The demo's server does not answer as it should: {error!r}."
            raise CommandError(message, code=ExitCode.FAILED) from error
