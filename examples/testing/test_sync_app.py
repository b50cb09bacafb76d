"""A blocking program, tested in the same process."""

import threading

from sync_app import Worker

from forewarn.testing import Emulator

SECONDS = 5


def test_worker_finishes_its_job_and_then_approves(scheduled_events: Emulator) -> None:
    web = scheduled_events.vm("web-0")
    has_begun, may_end = threading.Event(), threading.Event()

    def job() -> None:
        has_begun.set()
        may_end.wait(SECONDS)

    with Worker(web.url) as worker:
        worker.jobs.put(job)
        assert has_begun.wait(SECONDS)
        reboot = web.reboot()
        assert worker.is_paused.wait(SECONDS)
        reboot.assert_not_approved()

        may_end.set()

        scheduled_events.await_started(reboot)  # long before its time
        reboot.assert_approved(by="web-0")


def test_worker_takes_jobs_again_when_the_reboot_is_over(scheduled_events: Emulator) -> None:
    web = scheduled_events.vm("web-0")
    is_done = threading.Event()

    with Worker(web.url) as worker:
        reboot = web.reboot()
        scheduled_events.await_started(reboot)
        worker.jobs.put(is_done.set)

        scheduled_events.clock.advance(minutes=10)  # as long as a simulated reboot takes

        assert is_done.wait(SECONDS)
        reboot.assert_status("Completed")


def test_worker_survives_an_empty_answer_and_an_update_of_the_host(
    scheduled_events: Emulator,
) -> None:
    web = scheduled_events.vm("web-0")
    web.fault("status", status=410, times=1)
    web.fault("empty-body", times=1)

    with Worker(web.url):
        reboot = web.reboot()

        scheduled_events.await_approved(reboot, timeout=10)


def test_worker_lets_its_neighbor_approve_for_itself(scheduled_events: Emulator) -> None:
    mine, neighbor = scheduled_events.vm("web-0"), scheduled_events.vm("web-1")

    with Worker(mine.url) as worker:
        theirs = neighbor.freeze(duration=9)
        assert mine.document() == neighbor.document()  # one availability set, one document
        ours = mine.freeze(duration=9)
        scheduled_events.await_approved(ours)

        theirs.assert_not_approved()
        assert worker.is_paused.is_set()
