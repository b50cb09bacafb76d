"""A pause on one replica, while the one that leads is about to begin something."""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from tests.executors.conftest import (
    EVENT,
    KEY,
    NOW,
    WEB_0,
    contract,
    is_over,
    make_webhook,
    wait_for,
    wait_until,
)
from tests.executors.target import Asked, OrderTarget

from forewarn.bootstrap.order_records import IMPACT_ORDERS, OrderRecords
from forewarn.clocks import SystemClock
from forewarn.domain.impact import ImpactStatus
from forewarn.domain.names import VmName
from forewarn.executors.command import SCRIPTS, Command
from forewarn.executors.impacts import IMPACTS, ContractedExecutor
from forewarn.executors.processes import ProcessContractor
from forewarn.executors.targets import ImpactTarget
from forewarn.operations.context import Context
from forewarn.operations.pausing import pause_server, resume_server
from forewarn.ports.store import Store
from forewarn.storage.postgres import open_postgres

CONTEXT = Context(who="ops", now=NOW, at=NOW, new_id=lambda: EVENT.event_id)


class TwoReplicas:
    """The one that leads, and another one on which the server is paused."""

    def __init__(self, leading: Store, other: Store) -> None:
        self.leading, self._other = leading, other
        self.epoch = self.lead()

    def lead(self) -> int:
        return self._other.write(lambda tx: tx.next_epoch())

    def pause(self) -> None:
        self._other.write(lambda tx: pause_server(tx, CONTEXT))

    def resume(self) -> None:
        self._other.write(lambda tx: resume_server(tx, CONTEXT))


@pytest.fixture
def replicas(postgres_url: str) -> Iterator[TwoReplicas]:
    with ExitStack() as stack:
        yield TwoReplicas(
            *(
                stack.enter_context(closing(open_postgres(postgres_url, node="node-0")))
                for _ in range(2)
            )
        )


def make_script(
    replicas: TwoReplicas, folder: Path, meanwhile: Callable[[], object]
) -> ContractedExecutor:
    """Return an executor; after its look, before it begins, something happens *meanwhile*."""

    looks = count(1)

    def find(_: Mapping[str, Any]) -> Command:
        if next(looks) == 2:  # the first is to see who takes the order
            meanwhile()
        return Command(run=("/usr/bin/touch", f"{folder}/ran"))

    contractor = ProcessContractor(
        find,
        SCRIPTS,
        kind=IMPACTS,
        records=OrderRecords(IMPACT_ORDERS, folder, replicas.leading).for_scripts(),
        environment={},
        clock=SystemClock(),
    )
    return contract(contractor)


def test_script_does_not_begin_after_a_pause_on_another_replica(
    replicas: TwoReplicas, tmp_path: Path
) -> None:
    pauses = iter([replicas.pause])
    executor = make_script(replicas, tmp_path, lambda: [pause() for pause in pauses])

    executor.begin(EVENT, WEB_0, epoch=replicas.epoch)

    wait_for(executor, lambda impact: impact.status is not ImpactStatus.RUNNING)
    assert executor.inquire(*KEY).status is ImpactStatus.NOT_BEGUN
    assert not (tmp_path / "ran").exists()
    replicas.resume()
    executor.begin(EVENT, WEB_0, epoch=replicas.epoch)
    assert wait_for(executor, is_over).status is ImpactStatus.DONE


def test_script_does_not_begin_after_another_replica_took_over(
    replicas: TwoReplicas, tmp_path: Path
) -> None:
    executor = make_script(replicas, tmp_path, replicas.lead)

    executor.begin(EVENT, WEB_0, epoch=replicas.epoch)

    wait_for(executor, lambda impact: impact.status is not ImpactStatus.RUNNING)
    assert executor.inquire(*KEY).status is ImpactStatus.NOT_BEGUN
    assert not (tmp_path / "ran").exists()


def test_order_that_waits_for_its_turn_is_not_sent_after_a_pause_on_another_replica(
    replicas: TwoReplicas, tmp_path: Path
) -> None:
    release, at_once, target = threading.Event(), 32, OrderTarget()
    last = (EVENT.event_id, VmName("vm-last"))

    def hang(_: Asked) -> None:
        release.wait(60)

    target.on_post = hang
    records = OrderRecords(IMPACT_ORDERS, tmp_path, replicas.leading).for_webhooks()
    with target.listening():
        executor = make_webhook(tmp_path, ImpactTarget(url=target.url), records=records)
        for number in range(at_once):
            executor.begin(EVENT, VmName(f"vm-{number}"), epoch=replicas.epoch)
        wait_until(lambda: len(target.asked) == at_once, "the target is not told")
        executor.begin(EVENT, last[1], epoch=replicas.epoch)

        replicas.pause()
        release.set()

        waits = "it is waiting because the server is paused"
        wait_for(executor, lambda impact: impact.reason == waits, last)
        assert last not in target.deeds
        replicas.resume()
        wait_for(executor, lambda impact: impact.reason == "working", last)
        executor.close()
