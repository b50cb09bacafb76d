"""A program of the operator carries maintenance out; it is told to, and asked how far it is.

De-duplication is at the target: an order may arrive several times, with the same EventId and
virtual machine. That the target took it is remembered here, and from then on it is only asked.
"""

import os
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final

import structlog

from forewarn.domain.event import ScheduledEvent
from forewarn.domain.impact import Impact, ImpactStatus
from forewarn.domain.names import HostName, VmName
from forewarn.executors.answers import Answer, judge_order, judge_status
from forewarn.executors.exchange import Exchange, Target
from forewarn.executors.orders import Order, choose, next_second, nobody_for
from forewarn.executors.records import ImpactKey, Records
from forewarn.operations.durations import format_duration
from forewarn.ports.clock import Clock, WallClock
from forewarn.protocol.vocabulary import EventId, EventType

EXECUTOR: Final = "webhook"
EVENT_ID: Final = "Forewarn-Event-Id"
VIRTUAL_MACHINE: Final = "Forewarn-Virtual-Machine"
EPOCH: Final = "Forewarn-Epoch"

log = structlog.get_logger()

# Enough that a target which lets a hundred orders hang leaves some for the others.
_WORKERS: Final = 32
_CLOSING_SECONDS: Final = 2.0
_FORGET_AFTER: Final = timedelta(minutes=10)
_ENDINGS: Final = frozenset({ImpactStatus.DONE, ImpactStatus.FAILED})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Errand:
    """One impact as far as this server knows. There is an *order* until the target took it."""

    target: Target
    epoch: int
    since: datetime
    due: datetime
    order: Order | None = None
    status_url: str | None = None
    failures: int = 0
    is_under_way: bool = False
    impact: Impact = field(default_factory=lambda: Impact(status=ImpactStatus.RUNNING))

    @property
    def has_somewhere_to_ask(self) -> bool:
        return self.order is not None or self.status_url is not None


class WebhookExecutor:
    """Posts each order until its target takes it, then asks until it is over or out of time.

    Requests are made by threads of its own: `begin` and `inquire` wait for nobody. A target that
    names no place to ask tells the end by completing the event. *wait* says how long to wait until
    a target is asked again that did not tell so many times in a row.
    """

    def __init__(
        self,
        targets: Sequence[Target],
        *,
        records: Records,
        host_of: Callable[[VmName], HostName | None],
        clock: Clock,
        wall: WallClock,
        wait: Callable[[int], timedelta],
    ) -> None:
        self._targets = targets
        self._records = records
        self._host_of = host_of
        self._clock = clock
        self._wall = wall
        self._wait = wait
        self._exchange = Exchange()
        self._errands: dict[ImpactKey, _Errand] = {}
        self._changing = threading.Lock()
        self._to_do: queue.SimpleQueue[ImpactKey | None] = queue.SimpleQueue()
        self._is_closed = False
        self._workers = [
            # Daemons: who waits for a slow target must not keep the server from ending.
            threading.Thread(target=self._work, name=f"webhook-executor-{number}", daemon=True)
            for number in range(_WORKERS)
        ]
        for worker in self._workers:
            worker.start()

    def begin(self, event: ScheduledEvent, vm: VmName, *, epoch: int) -> Impact:
        """Have the order posted, unless it was taken, or is being posted."""
        host = event.host or self._host_of(vm)
        order = Order(event=event, vm=vm, host=host, epoch=epoch)
        if order.key not in self._errands and not self._records.has(order.key):
            self._begin(order)
        return self.inquire(*order.key)

    def inquire(self, event_id: EventId, vm: VmName) -> Impact:
        """Say what the target last said, and have it asked again if it is time to."""
        key = (event_id, vm)
        if ended := self._records.ended(key):
            self._forget(key)
            return ended
        errand = self._errands.get(key) or self._remember(key)
        if errand is None:
            return Impact(status=ImpactStatus.NOT_BEGUN)
        if isinstance(errand, Impact):
            return errand
        now = self._wall.now()
        if now >= errand.since + errand.target.timeout:
            self._records.end(key, ImpactStatus.FAILED, _out_of_time(errand))
            self._forget(key)
            return self._records.ended(key) or errand.impact
        if not errand.is_under_way and now >= errand.due and errand.has_somewhere_to_ask:
            self._send_out(key, errand)
        return replace(errand.impact, ask_again_at=next_second(self._clock.now()))

    def close(self) -> None:
        """Let go of threads and connections. Nothing that was begun is stopped by it."""
        self._is_closed = True
        for _ in self._workers:
            self._to_do.put(None)
        deadline = time.monotonic() + _CLOSING_SECONDS
        for worker in self._workers:
            worker.join(max(0.0, deadline - time.monotonic()))
        self._exchange.close()

    def _begin(self, order: Order) -> None:
        target = choose(self._targets, order.event.event_type, order.host)
        if target is None:
            self._records.end(order.key, ImpactStatus.FAILED, nobody_for(order, EXECUTOR))
            return
        now = self._wall.now()
        self._forget_others(now)
        errand = _Errand(target=target, epoch=order.epoch, since=now, due=now, order=order)
        self._send_out(order.key, errand)

    def _remember(self, key: ImpactKey) -> _Errand | Impact | None:
        """Return what another server has left, as far as it can be gone on with."""
        begun = self._records.begun(key)
        if begun is None:
            return None
        if begun["executor"] != EXECUTOR:
            reason = f"it was begun by the executor {begun['executor']}; serve with that"
            return Impact(status=ImpactStatus.UNKNOWN, reason=reason)
        target = choose(self._targets, EventType(begun["event_type"]), begun["host"])
        status_url: str | None = begun["status_url"]
        if target is None or (status_url and not target.has(status_url)):
            reason = "the target that took it is no longer in the file of executors"
            return Impact(status=ImpactStatus.UNKNOWN, reason=reason)
        errand = _Errand(
            target=target,
            epoch=begun["epoch"],
            since=datetime.fromisoformat(begun["taken_at"]),
            due=self._wall.now(),
            status_url=status_url,
        )
        with self._changing:
            self._errands[key] = errand
        return errand

    def _send_out(self, key: ImpactKey, errand: _Errand) -> None:
        with self._changing:
            self._errands[key] = replace(errand, is_under_way=True)
        self._to_do.put(key)

    def _forget(self, key: ImpactKey) -> None:
        with self._changing:
            self._errands.pop(key, None)

    def _forget_others(self, now: datetime) -> None:
        """Forget what nobody asks about any more: the event was completed from outside."""
        with self._changing:
            self._errands = {
                key: errand
                for key, errand in self._errands.items()
                if errand.is_under_way or errand.due + _FORGET_AFTER > now
            }

    def _work(self) -> None:
        while (key := self._to_do.get()) is not None:
            errand = self._errands.get(key)
            if errand is None or self._is_closed:
                continue
            try:
                known = self._run(key, errand)
            except Exception as error:
                log.exception("webhook_executor_failed", event_id=key[0], vm=key[1])
                trouble = Impact(status=ImpactStatus.UNKNOWN, reason=str(error))
                known = self._later(errand, trouble, timedelta(0))
            with self._changing:
                if key in self._errands:
                    self._errands[key] = known

    def _run(self, key: ImpactKey, errand: _Errand) -> _Errand:
        """Make one request, write down what has to be, and return what is known then."""
        answer = self._ask(key, errand)
        if errand.order is None:
            impact = judge_status(answer)
        else:
            impact = judge_order(answer)
            if answer.is_success:
                errand = self._note_taken(errand.order, errand, answer)
        if impact.status in _ENDINGS:
            self._records.end(key, impact.status, impact.reason)
        return self._later(errand, impact, answer.retry_after)

    def _ask(self, key: ImpactKey, errand: _Errand) -> Answer:
        event_id, vm = key
        headers = {EVENT_ID: event_id, VIRTUAL_MACHINE: vm, EPOCH: str(errand.epoch)}
        now = self._wall.now()
        if errand.order is not None:
            return self._exchange.post(errand.target, errand.order.encode(), headers, now)
        return self._exchange.get(errand.target, errand.status_url or "", headers, now)

    def _note_taken(self, order: Order, errand: _Errand, answer: Answer) -> _Errand:
        now = self._wall.now()
        record: Mapping[str, object] = {
            "executor": EXECUTOR,
            "event_type": order.event.event_type,
            "host": order.host,
            "epoch": order.epoch,
            "taken_at": now.isoformat(),
            "status_url": answer.status_url,
        }
        file = self._records.claim(order.key, record)
        if file is not None:
            os.close(file)
        return replace(errand, order=None, since=now, status_url=answer.status_url)

    def _later(self, errand: _Errand, impact: Impact, not_before: timedelta) -> _Errand:
        failures = errand.failures + 1 if impact.status is ImpactStatus.UNKNOWN else 0
        due = self._wall.now() + max(self._wait(failures), not_before)
        return replace(errand, impact=impact, failures=failures, due=due, is_under_way=False)


def _out_of_time(errand: _Errand) -> str:
    limit = format_duration(errand.target.timeout)
    said = f": {errand.impact.reason}" if errand.impact.reason else ""
    if errand.order is not None:
        return f"it was not taken within {limit}{said}"
    return f"no end was reported within {limit}{said}"
