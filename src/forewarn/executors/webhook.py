"""A program of the operator carries tasks out; it is told to, and asked how far it is.

De-duplication is at the target: a task may arrive several times, with the same key. That the
target accepted it is recorded, and from then on it is only asked.
"""

import asyncio
import json
import os
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from http import HTTPStatus
from typing import Final

import httpx2
import structlog

from forewarn.domain.impact import Impact, ImpactStatus
from forewarn.domain.names import HostName, is_name
from forewarn.domain.task import TaskKey
from forewarn.executors.attendant import elapsed_seconds
from forewarn.executors.processes import PERMIT_SECONDS
from forewarn.executors.task_input import (
    LONGEST,
    PAUSED,
    Permit,
    Selection,
    TaskInput,
    begun_by_another,
    next_second,
)
from forewarn.executors.task_log import TaskLog
from forewarn.outbound.client import NoAnswerError, Outbound, OutboundRequest, Reply
from forewarn.ports.clock import Clock, WallClock
from forewarn.ports.store import StoreError
from forewarn.wording.durations import format_duration

EXECUTOR: Final = "webhook"
EPOCH: Final = "Forewarn-Epoch"

log = structlog.get_logger()

_AT_ONCE: Final = 32
"""How many requests are made to one target at the same time."""
_LEAVE_SECONDS: Final = 2.0
"""How long a target that is accepting a task may need before it is left alone."""
_FORGET_AFTER_SECONDS: Final = 600.0
_ENDINGS: Final = frozenset({ImpactStatus.DONE, ImpactStatus.FAILED})
_TRY_AGAIN: Final = frozenset(
    {HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_EARLY, HTTPStatus.TOO_MANY_REQUESTS}
)
_STATUSES: Final = {
    "running": ImpactStatus.RUNNING,
    "done": ImpactStatus.DONE,
    "failed": ImpactStatus.FAILED,
}
_LONGEST_MESSAGE: Final = 200
_NONSENSE: Final = Impact(status=ImpactStatus.UNKNOWN, reason="the target sent an invalid answer")
_NO_HOST: Final = Impact(
    status=ImpactStatus.UNKNOWN, reason="the target reported an invalid host name"
)
_FORGOTTEN: Final = Impact(
    status=ImpactStatus.UNKNOWN, reason="the target accepted it, but no longer knows it"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookTarget:
    """Where to post, for which events, and how long the impact and each request may take."""

    url: str = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    secret: str | None = field(default=None, repr=False)
    selection: Selection = field(default_factory=Selection)
    timeout: timedelta = LONGEST
    request_timeout: float = 10.0

    def has(self, url: str) -> bool:
        """Tell whether *url* is at the same place: nobody else gets our headers."""
        own, other = httpx2.URL(self.url), httpx2.URL(url)
        return (own.scheme, own.host, own.port) == (other.scheme, other.host, other.port)

    def join(self, location: str) -> str | None:
        """Return the address that *location* is, if it is at the same place."""
        try:
            url = str(httpx2.URL(self.url).join(location))
            return url if self.has(url) else None
        except (httpx2.InvalidURL, ValueError):  # the latter for http:////[
            return None

    def request(
        self, headers: Mapping[str, str], *, body: bytes = b"", url: str | None = None
    ) -> OutboundRequest:
        """Return the request that hands over a task as *body*, or asks at *url* how far it is."""
        kind = {"Content-Type": "application/json"} if body else {}
        return OutboundRequest(
            method="POST" if body else "GET",
            url=url or self.url,
            timeout=self.request_timeout,
            headers={"Accept": "application/json", **kind, **self.headers, **headers},
            body=body,
            secret=self.secret,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetAnswer:
    """One answer, or with the *code* 0 none, and then *said* is why.

    *body* is what was said in JSON, if anything was; *status_url* is where to ask from now on.
    """

    code: int
    said: str
    body: str | None = None
    status_url: str | None = None
    retry_after: timedelta = timedelta(0)

    @property
    def is_success(self) -> bool:
        return HTTPStatus.OK <= self.code < HTTPStatus.MULTIPLE_CHOICES

    @property
    def is_worth_another_try(self) -> bool:
        is_down = self.code >= HTTPStatus.INTERNAL_SERVER_ERROR
        return self.code == 0 or is_down or self.code in _TRY_AGAIN


def read_answer(target: WebhookTarget, reply: Reply, now: datetime) -> TargetAnswer:
    """Return what *target* said."""
    location = reply.headers.get("Location")
    return TargetAnswer(
        code=reply.status,
        said=reply.said,
        body=reply.body if _is_json(reply) else None,
        status_url=target.join(location) if location else None,
        retry_after=reply.retry_after(now),
    )


def judge_acceptance(answer: TargetAnswer, otherwise: str) -> Impact:
    """Say what is known after the target was told to begin.

    *otherwise* is the reason to give if the target names no place to ask.
    """
    if answer.is_success and answer.body is not None:
        return _read(answer.body)
    if answer.is_success:
        return Impact(status=ImpactStatus.RUNNING, reason="" if answer.status_url else otherwise)
    if answer.is_worth_another_try:
        reason = f"the target has not accepted it yet: {answer.said}"
        return Impact(status=ImpactStatus.UNKNOWN, reason=reason)
    return Impact(status=ImpactStatus.FAILED, reason=f"the target rejected it: {answer.said}")


def judge_status(answer: TargetAnswer) -> Impact:
    """Say what is known after the target, which took the task, was asked how far it is."""
    if answer.code in {HTTPStatus.NOT_FOUND, HTTPStatus.GONE}:
        return _FORGOTTEN
    if not answer.is_success:
        reason = f"the target did not report its status: {answer.said}"
        return Impact(status=ImpactStatus.UNKNOWN, reason=reason)
    return _NONSENSE if answer.body is None else _read(answer.body)


def _is_json(reply: Reply) -> bool:
    """Tell whether the body is said to be JSON, or is an object of it whatever is said."""
    if "json" in reply.headers.get("Content-Type", ""):
        return True
    try:
        return isinstance(json.loads(reply.body), dict)
    except (ValueError, RecursionError):
        return False


def _read(body: str) -> Impact:
    try:
        content = json.loads(body)
    except (ValueError, RecursionError):
        return _NONSENSE
    if not isinstance(content, Mapping):
        return _NONSENSE
    said = content.get("status")
    if said == ImpactStatus.NOT_BEGUN:
        return _FORGOTTEN
    status = _STATUSES.get(said) if isinstance(said, str) else None
    if status is None:
        return _NONSENSE
    return _with_host(Impact(status=status, reason=_message(content)), content.get("host"))


def _with_host(impact: Impact, host: object) -> Impact:
    # What the task says of the host comes back from targets that repeat it: nothing moves then.
    if host is None or not impact.is_over:
        return impact
    if not isinstance(host, str) or not is_name(host):
        return _NO_HOST
    return replace(impact, moved_to=HostName(host))


def _message(content: Mapping[str, object]) -> str:
    message = content.get("message")
    if not isinstance(message, str):
        return ""
    return "".join(filter(str.isprintable, message)).strip()[:_LONGEST_MESSAGE]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Delivery:
    """A *task* on its way to its *target*: posted until that has accepted it, then asked about.

    It is posted with the *permit*, which is obtained once. When it is *due*, and when its time is
    over, is told by a clock that nobody sets.
    """

    target: WebhookTarget
    task: TaskInput
    over_at: float
    due: float
    is_accepted: bool = False
    permit: Permit | None = None
    is_permitted: bool = False
    status_url: str | None = None
    failures: int = 0
    is_under_way: bool = False
    impact: Impact = field(default_factory=lambda: Impact(status=ImpactStatus.RUNNING))

    @property
    def has_somewhere_to_ask(self) -> bool:
        return not self.is_accepted or self.status_url is not None


@dataclass(slots=True, kw_only=True, eq=False, repr=False)
class WebhookRunner:
    """Posts each task until its target accepts it, then asks until it is over or out of time.

    Requests wait on the loop of *outbound*: `begin` and `inquire` wait for nobody. *find* says
    which target a task is for. *wait* says how long to wait until a target is asked again that
    did not tell so many times in a row.
    """

    find: Callable[[TaskInput], WebhookTarget | None] = field(kw_only=False)
    log: TaskLog
    outbound: Outbound
    clock: Clock
    wall: WallClock
    wait: Callable[[int], timedelta]
    permit_seconds: float = PERMIT_SECONDS
    _deliveries: dict[TaskKey, _Delivery] = field(init=False, default_factory=dict)
    _changing: threading.Lock = field(init=False, default_factory=threading.Lock)
    _is_closed: bool = field(init=False, default=False)
    _turns: defaultdict[str, asyncio.Semaphore] = field(
        init=False, default_factory=lambda: defaultdict(lambda: asyncio.Semaphore(_AT_ONCE))
    )
    _requests: set[Future[None]] = field(init=False, default_factory=set)

    @property
    def repeats(self) -> bool:
        return True

    def begin(self, task: TaskInput, permit: Permit) -> Impact | None:
        """Have the task posted, unless it was accepted, or is being posted."""
        if task.key not in self._deliveries and not self.log.has(task.key):
            self._begin(task, permit)
        said = self.inquire(task)
        delivery = self._deliveries.get(task.key)
        is_coming = delivery is not None and not (delivery.is_accepted or delivery.is_permitted)
        return None if is_coming else said

    def inquire(self, task: TaskInput) -> Impact:
        """Say what the target last said, and have it asked again if it is time to."""
        key = task.key
        if ended := self.log.ended(key):
            self._forget(key)
            return ended
        delivery = self._deliveries.get(key) or self._remember(task)
        if delivery is None:
            return Impact(status=ImpactStatus.NOT_BEGUN)
        if isinstance(delivery, Impact):
            return delivery
        now = time.monotonic()
        if now >= delivery.over_at:
            self.log.end(key, ImpactStatus.FAILED, _out_of_time(delivery))
            self._forget(key)
            return self.log.ended(key) or delivery.impact
        if not delivery.is_under_way and now >= delivery.due and delivery.has_somewhere_to_ask:
            self._send_out(key, delivery)
        asked = next_second(self.clock.now())
        return replace(delivery.impact, ask_again_at=asked, status_url=delivery.status_url)

    def close(self) -> None:
        """Send nothing more, and give up what takes long. Nothing that was begun is stopped by it.

        What a target is taking now is waited for: unless that is written down, the next one to ask
        would send the task again.
        """
        with self._changing:
            self._is_closed = True
            requests = list(self._requests)
        for request in wait(requests, _LEAVE_SECONDS).not_done:
            request.cancel()

    def _begin(self, task: TaskInput, permit: Permit) -> None:
        target = self.find(task)
        if target is None:
            self.log.end(task.key, permit.refusal, task.unassigned(EXECUTOR))
            return
        now = time.monotonic()
        self._forget_others(now)
        delivery = _Delivery(
            target=target,
            task=task,
            over_at=now + target.timeout.total_seconds(),
            due=now,
            permit=permit,
        )
        with self._changing:
            if not self._is_closed:
                self._deliveries[task.key] = delivery

    def _remember(self, task: TaskInput) -> _Delivery | Impact | None:
        """Return what another server has left, as far as it can be gone on with."""
        if task.status_url is not None and not self.log.has(task.key):
            self._record_taken(task, task.status_url)  # another server had it accepted
        begun = self.log.begun(task.key)
        if begun is None:
            return None
        if begun["executor"] != EXECUTOR:
            return begun_by_another(begun["executor"])
        task = replace(task, host=begun["host"], epoch=begun["epoch"])
        target = self.find(task)
        status_url: str | None = begun["status_url"]
        if target is None or (status_url and not target.has(status_url)):
            reason = "the target that accepted it is no longer in the executor file"
            return Impact(status=ImpactStatus.UNKNOWN, reason=reason)
        now = time.monotonic()
        since_taken = self.wall.now() - datetime.fromisoformat(begun["taken_at"])
        left = target.timeout - max(since_taken, timedelta(0))
        delivery = _Delivery(
            target=target,
            task=task,
            over_at=now + left.total_seconds(),
            due=now,
            is_accepted=True,
            status_url=status_url,
        )
        with self._changing:
            self._deliveries[task.key] = delivery
        return delivery

    def _send_out(self, key: TaskKey, delivery: _Delivery) -> None:
        with self._changing, suppress(NoAnswerError):  # the server is about to stop
            if self._is_closed:
                return
            self._deliveries[key] = replace(delivery, is_under_way=True)
            request = self.outbound.begin(self._work(key, delivery))
            self._requests.add(request)
            request.add_done_callback(self._requests.discard)

    def _forget(self, key: TaskKey) -> None:
        with self._changing:
            self._deliveries.pop(key, None)

    def _forget_others(self, now: float) -> None:
        """Forget tasks that have ended by an operator's word: they are not asked about any more."""
        with self._changing:
            self._deliveries = {
                key: delivery
                for key, delivery in self._deliveries.items()
                if delivery.is_under_way or delivery.due + _FORGET_AFTER_SECONDS > now
            }

    async def _work(self, key: TaskKey, delivery: _Delivery) -> None:
        try:
            async with self._turns[delivery.target.url]:
                if self._is_closed or key not in self._deliveries:
                    return  # it ended while it waited for its turn
                if not (delivery.is_accepted or await self._may_post(key, delivery)):
                    return
                delivery = replace(delivery, is_permitted=True)
                answer = await self._ask(delivery)
            # Records are files, and the loop is there for others, too.
            known = await asyncio.to_thread(self._conclude, key, delivery, answer)
        except StoreError:  # not sent: it is tried again
            known = self._later(delivery, delivery.impact, timedelta(0))
        except Exception as error:
            log.exception("webhook_executor_failed", task=key)
            trouble = Impact(status=ImpactStatus.UNKNOWN, reason=str(error))
            known = self._later(delivery, trouble, timedelta(0))
        with self._changing:
            if key in self._deliveries:
                self._deliveries[key] = known

    async def _may_post(self, key: TaskKey, delivery: _Delivery) -> bool:
        """Tell whether the task may be posted now; otherwise note why it is not."""
        if delivery.permit is None:
            return False
        ask = delivery.permit.is_valid if delivery.is_permitted else delivery.permit.obtain
        since = elapsed_seconds()
        is_given = await asyncio.to_thread(ask)
        if is_given and elapsed_seconds() - since > self.permit_seconds:
            is_given = await asyncio.to_thread(delivery.permit.is_valid)
        if is_given:
            return True
        with self._changing:
            if delivery.is_permitted:
                paused = Impact(status=ImpactStatus.RUNNING, reason=PAUSED)
                self._deliveries[key] = self._later(delivery, paused, timedelta(0))
            else:
                self._deliveries.pop(key, None)
        return False

    async def _ask(self, delivery: _Delivery) -> TargetAnswer:
        headers = {**delivery.task.headers, EPOCH: str(delivery.task.epoch)}
        target, now = delivery.target, self.wall.now()
        if delivery.is_accepted:
            request = target.request(headers, url=delivery.status_url)
        else:
            request = target.request(headers, body=delivery.task.encode())
        try:
            return read_answer(target, await self.outbound.send(request, now=now), now)
        except NoAnswerError as error:
            said = str(error).rstrip(".")
            return TargetAnswer(code=0, said=f"{said[:1].lower()}{said[1:]}")

    def _conclude(self, key: TaskKey, delivery: _Delivery, answer: TargetAnswer) -> _Delivery:
        """Write down what has to be of an answer, and return what is known then."""
        if delivery.is_accepted:
            impact = judge_status(answer)
        else:
            impact = judge_acceptance(answer, delivery.task.without_status_url)
            if answer.is_success:
                delivery = self._note_taken(delivery, answer)
        if impact.status in _ENDINGS:
            self.log.end(key, impact.status, impact.reason, host=impact.moved_to)
        return self._later(delivery, impact, answer.retry_after)

    def _note_taken(self, delivery: _Delivery, answer: TargetAnswer) -> _Delivery:
        over_at = time.monotonic() + delivery.target.timeout.total_seconds()
        self._record_taken(delivery.task, answer.status_url)
        return replace(delivery, is_accepted=True, over_at=over_at, status_url=answer.status_url)

    def _record_taken(self, task: TaskInput, status_url: str | None) -> None:
        record: Mapping[str, object] = {
            "executor": EXECUTOR,
            "host": task.host,
            "epoch": task.epoch,
            "taken_at": self.wall.now().isoformat(),
            "status_url": status_url,
        }
        file = self.log.claim(task.key, record)
        if file is not None:
            os.close(file)

    def _later(self, delivery: _Delivery, impact: Impact, not_before: timedelta) -> _Delivery:
        failures = delivery.failures + 1 if impact.status is ImpactStatus.UNKNOWN else 0
        due = time.monotonic() + max(self.wait(failures), not_before).total_seconds()
        return replace(delivery, impact=impact, failures=failures, due=due, is_under_way=False)


def _out_of_time(delivery: _Delivery) -> str:
    limit = format_duration(delivery.target.timeout)
    said = f": {delivery.impact.reason}" if delivery.impact.reason else ""
    if not delivery.is_accepted:
        return f"it was not accepted within {limit}{said}"
    return f"no result was reported within {limit}{said}"
