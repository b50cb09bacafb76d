"""A program of the operator carries orders out; it is told to, and asked how far it is.

De-duplication is at the target: an order may arrive several times, with the same key. That the
target took it is remembered here, and from then on it is only asked.
"""

import asyncio
import os
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Final

import structlog

from forewarn.domain.impact import Impact, ImpactStatus
from forewarn.domain.task import TaskKey
from forewarn.executors.orders import (
    PAUSED,
    Order,
    OrderKind,
    Permit,
    begun_by_another,
    encode,
    next_second,
)
from forewarn.executors.targets import (
    ImpactTarget,
    TargetAnswer,
    judge_order,
    judge_status,
    read_answer,
)
from forewarn.executors.task_log import TaskLog
from forewarn.outbound.client import NoAnswerError, Outbound
from forewarn.ports.clock import Clock, WallClock
from forewarn.ports.store import StoreError
from forewarn.wording.durations import format_duration

EXECUTOR: Final = "webhook"
EPOCH: Final = "Forewarn-Epoch"

log = structlog.get_logger()

_AT_ONCE: Final = 32
"""How many requests are made to one target at the same time."""
_LEAVE_SECONDS: Final = 2.0
"""How long a target that is taking an order may need before it is left alone."""
_FORGET_AFTER_SECONDS: Final = 600.0
_ENDINGS: Final = frozenset({ImpactStatus.DONE, ImpactStatus.FAILED})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Errand:
    """One order as far as this server knows. There is an *order* until the target took it.

    It is posted with the *permit*, which is obtained once.

    When it is *due*, and when its time is over, is told by a clock that nobody sets.
    """

    target: ImpactTarget
    epoch: int
    over_at: float
    due: float
    kind: OrderKind
    order: Order | None = None
    permit: Permit | None = None
    is_permitted: bool = False
    status_url: str | None = None
    failures: int = 0
    is_under_way: bool = False
    impact: Impact = field(default_factory=lambda: Impact(status=ImpactStatus.RUNNING))

    @property
    def has_somewhere_to_ask(self) -> bool:
        return self.order is not None or self.status_url is not None


@dataclass(slots=True, kw_only=True, eq=False, repr=False)
class WebhookRunner:
    """Posts each order until its target takes it, then asks until it is over or out of time.

    Requests wait on the loop of *outbound*: `begin` and `inquire` wait for nobody. *find* says
    which target an order is for. *wait* says how long to wait until a target is asked again that
    did not tell so many times in a row.
    """

    find: Callable[[Mapping[str, Any]], ImpactTarget | None] = field(kw_only=False)
    log: TaskLog
    outbound: Outbound
    clock: Clock
    wall: WallClock
    wait: Callable[[int], timedelta]
    _errands: dict[TaskKey, _Errand] = field(init=False, default_factory=dict)
    _changing: threading.Lock = field(init=False, default_factory=threading.Lock)
    _is_closed: bool = field(init=False, default=False)
    _turns: defaultdict[str, asyncio.Semaphore] = field(
        init=False, default_factory=lambda: defaultdict(lambda: asyncio.Semaphore(_AT_ONCE))
    )
    _requests: set[Future[None]] = field(init=False, default_factory=set)

    @property
    def repeats(self) -> bool:
        return True

    def begin(self, order: Order, permit: Permit) -> Impact | None:
        """Have the order posted, unless it was accepted, or is being posted."""
        if order.key not in self._errands and not self.log.has(order.key):
            self._begin(order, permit)
        said = self.inquire(order)
        errand = self._errands.get(order.key)
        is_coming = errand is not None and errand.order is not None and not errand.is_permitted
        return None if is_coming else said

    def inquire(self, order: Order) -> Impact:
        """Say what the target last said, and have it asked again if it is time to."""
        key = order.key
        if ended := self.log.ended(key):
            self._forget(key)
            return ended
        errand = self._errands.get(key) or self._remember(order)
        if errand is None:
            return Impact(status=ImpactStatus.NOT_BEGUN)
        if isinstance(errand, Impact):
            return errand
        now = time.monotonic()
        if now >= errand.over_at:
            self.log.end(key, ImpactStatus.FAILED, _out_of_time(errand))
            self._forget(key)
            return self.log.ended(key) or errand.impact
        if not errand.is_under_way and now >= errand.due and errand.has_somewhere_to_ask:
            self._send_out(key, errand)
        asked = next_second(self.clock.now())
        return replace(errand.impact, ask_again_at=asked, status_url=errand.status_url)

    def close(self) -> None:
        """Send nothing more, and give up what takes long. Nothing that was begun is stopped by it.

        What a target is taking now is waited for: unless that is written down, the next one to ask
        would send the order again.
        """
        with self._changing:
            self._is_closed = True
            requests = list(self._requests)
        for request in wait(requests, _LEAVE_SECONDS).not_done:
            request.cancel()

    def _begin(self, order: Order, permit: Permit) -> None:
        target = self.find(order.about)
        if target is None:
            self.log.end(order.key, ImpactStatus.FAILED, order.nobody(EXECUTOR))
            return
        now = time.monotonic()
        self._forget_others(now)
        errand = _Errand(
            target=target,
            epoch=order.epoch,
            over_at=now + target.timeout.total_seconds(),
            due=now,
            kind=order.kind,
            order=order,
            permit=permit,
        )
        with self._changing:
            if not self._is_closed:
                self._errands[order.key] = errand

    def _remember(self, order: Order) -> _Errand | Impact | None:
        """Return what another server has left, as far as it can be gone on with."""
        if order.status_url is not None and not self.log.has(order.key):
            self._record_taken(order, order.status_url)  # another server had it accepted
        begun = self.log.begun(order.key)
        if begun is None:
            return None
        if begun["executor"] != EXECUTOR:
            return begun_by_another(begun["executor"])
        target = self.find(begun)
        status_url: str | None = begun["status_url"]
        if target is None or (status_url and not target.has(status_url)):
            reason = "the target that accepted it is no longer in the executor file"
            return Impact(status=ImpactStatus.UNKNOWN, reason=reason)
        now = time.monotonic()
        since_taken = self.wall.now() - datetime.fromisoformat(begun["taken_at"])
        left = target.timeout - max(since_taken, timedelta(0))
        errand = _Errand(
            target=target,
            epoch=begun["epoch"],
            over_at=now + left.total_seconds(),
            due=now,
            kind=order.kind,
            status_url=status_url,
        )
        with self._changing:
            self._errands[order.key] = errand
        return errand

    def _send_out(self, key: TaskKey, errand: _Errand) -> None:
        with self._changing, suppress(NoAnswerError):  # the server is about to stop
            if self._is_closed:
                return
            self._errands[key] = replace(errand, is_under_way=True)
            request = self.outbound.begin(self._work(key, errand))
            self._requests.add(request)
            request.add_done_callback(self._requests.discard)

    def _forget(self, key: TaskKey) -> None:
        with self._changing:
            self._errands.pop(key, None)

    def _forget_others(self, now: float) -> None:
        """Forget orders that nobody asks about any more: they were ended from outside."""
        with self._changing:
            self._errands = {
                key: errand
                for key, errand in self._errands.items()
                if errand.is_under_way or errand.due + _FORGET_AFTER_SECONDS > now
            }

    async def _work(self, key: TaskKey, errand: _Errand) -> None:
        try:
            async with self._turns[errand.target.url]:
                if self._is_closed or key not in self._errands:
                    return  # it ended while it waited for its turn
                if errand.order is not None and not await self._may_post(key, errand):
                    return
                errand = replace(errand, is_permitted=True)
                answer = await self._ask(key, errand)
            # Records are files, and the loop is there for others, too.
            known = await asyncio.to_thread(self._conclude, key, errand, answer)
        except StoreError:  # not sent: it is tried again
            known = self._later(errand, errand.impact, timedelta(0))
        except Exception as error:
            log.exception("webhook_executor_failed", order=key)
            trouble = Impact(status=ImpactStatus.UNKNOWN, reason=str(error))
            known = self._later(errand, trouble, timedelta(0))
        with self._changing:
            if key in self._errands:
                self._errands[key] = known

    async def _may_post(self, key: TaskKey, errand: _Errand) -> bool:
        """Tell whether the order may be posted now; otherwise note why it is not."""
        if errand.permit is None:
            return False
        ask = errand.permit.is_valid if errand.is_permitted else errand.permit.obtain
        if await asyncio.to_thread(ask):
            return True
        with self._changing:
            if errand.is_permitted:
                paused = Impact(status=ImpactStatus.RUNNING, reason=PAUSED)
                self._errands[key] = self._later(errand, paused, timedelta(0))
            else:
                self._errands.pop(key, None)
        return False

    async def _ask(self, key: TaskKey, errand: _Errand) -> TargetAnswer:
        names = (*errand.kind.headers, EPOCH)
        headers = dict(zip(names, (*key, str(errand.epoch)), strict=True))
        target, now = errand.target, self.wall.now()
        if errand.order is not None:
            request = target.request(headers, body=encode(errand.order))
        else:
            request = target.request(headers, url=errand.status_url)
        try:
            return read_answer(target, await self.outbound.send(request, now=now), now)
        except NoAnswerError as error:
            said = str(error).rstrip(".")
            return TargetAnswer(code=0, said=f"{said[:1].lower()}{said[1:]}")

    def _conclude(self, key: TaskKey, errand: _Errand, answer: TargetAnswer) -> _Errand:
        """Write down what has to be of an answer, and return what is known then."""
        if errand.order is None:
            impact = judge_status(answer)
        else:
            impact = judge_order(answer, errand.kind.untold)
            if answer.is_success:
                errand = self._note_taken(errand.order, errand, answer)
        if impact.status in _ENDINGS:
            self.log.end(key, impact.status, impact.reason, host=impact.moved_to)
        return self._later(errand, impact, answer.retry_after)

    def _note_taken(self, order: Order, errand: _Errand, answer: TargetAnswer) -> _Errand:
        over_at = time.monotonic() + errand.target.timeout.total_seconds()
        self._record_taken(order, answer.status_url)
        return replace(errand, order=None, over_at=over_at, status_url=answer.status_url)

    def _record_taken(self, order: Order, status_url: str | None) -> None:
        record: Mapping[str, object] = {
            "executor": EXECUTOR,
            **order.about,
            "epoch": order.epoch,
            "taken_at": self.wall.now().isoformat(),
            "status_url": status_url,
        }
        file = self.log.claim(order.key, record)
        if file is not None:
            os.close(file)

    def _later(self, errand: _Errand, impact: Impact, not_before: timedelta) -> _Errand:
        failures = errand.failures + 1 if impact.status is ImpactStatus.UNKNOWN else 0
        due = time.monotonic() + max(self.wait(failures), not_before).total_seconds()
        return replace(errand, impact=impact, failures=failures, due=due, is_under_way=False)


def _out_of_time(errand: _Errand) -> str:
    limit = format_duration(errand.target.timeout)
    said = f": {errand.impact.reason}" if errand.impact.reason else ""
    if errand.order is not None:
        return f"it was not accepted within {limit}{said}"
    return f"no result was reported within {limit}{said}"
