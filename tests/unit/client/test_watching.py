import logging
from random import Random
from typing import Any

import pytest
from tests.unit.client.conftest import Answer, Scene, document, event, reply, seeded

from forewarn.client import Change, ChangeKind, Event, Polled, RefusedError
from forewarn.client._messages import NoAnswer, Request, Response
from forewarn.client._watching import Watch
from forewarn.protocol.document import read_event

REFUSED = NoAnswer("it refuses connections")
NOT_MODIFIED = Response(status=304)
STARTED = reply({"event_status": "Started"})
COMPLETED = reply({"event_status": "Completed"})


class Watched:
    """A watch in a scene, and what it says."""

    def __init__(self, scene: Scene, random: Random | None = None) -> None:
        self.scene = scene
        self._watch = Watch(scene.conversations(random=random))

    def next(self, *script: Answer) -> Change:
        return self.scene.play(self._watch.next_change(), *script)

    def expect(self, kind: ChangeKind, number: int, *script: Answer) -> Change:
        change = self.next(*script)
        assert (change.kind, int(change.event.event_id[-12:], 16)) == (kind, number)
        return change


@pytest.fixture
def watched(scene: Scene) -> Watched:
    return Watched(scene)


def parked(scene: Scene, answer: Response, seconds: float) -> Answer:
    """Answer as a server that waits for a change does."""

    def wait(request: Request) -> Response:
        assert "If-None-Match" in request.headers
        scene.now += seconds
        headers = {**answer.headers, "preference-applied": request.headers["Prefer"]}
        return Response(status=answer.status, headers=headers, body=answer.body)

    return wait


def test_first_document_is_all_news(watched: Watched) -> None:
    first = document(4, [event(1), event(2, "Started")])

    change = watched.expect(ChangeKind.SCHEDULED, 1, first)
    watched.expect(ChangeKind.STARTED, 2)

    assert change.document_incarnation == 4


def test_event_is_followed_from_scheduled_to_completed(watched: Watched) -> None:
    watched.expect(ChangeKind.SCHEDULED, 1, document(1, [event(1)]))
    watched.expect(
        ChangeKind.STARTED, 1, document(1, [event(1)]), document(2, [event(1, "Started")])
    )
    change = watched.expect(
        ChangeKind.COMPLETED, 1, document(3), reply({"event_status": "Completed"})
    )

    assert change.event.event_status == "Started"
    assert change.document_incarnation == 3
    asked = watched.scene.requests[-1].path
    assert asked.startswith("/metadata/forewarn/v1/events/00000000-0000-4000-8000-000000000001?")


@pytest.mark.parametrize(
    ("answers", "kind"),
    [
        ([reply({"event_status": "Canceled"})], ChangeKind.CANCELED),
        ([reply({"event_status": "Started"}), document(2), STARTED], ChangeKind.GONE),
        ([reply({"event_status": None}), document(2), COMPLETED], ChangeKind.COMPLETED),
        ([Response(status=404), document(2)], ChangeKind.GONE),
        ([Response(status=400), document(2)], ChangeKind.GONE),
    ],
    ids=str,
)
def test_event_that_left_is_told_as_well_as_the_server_can(
    watched: Watched, answers: list[Answer], kind: ChangeKind
) -> None:
    watched.expect(ChangeKind.SCHEDULED, 1, document(1, [event(1)]))

    watched.expect(kind, 1, document(2), *answers)


def test_event_that_one_document_lacks_is_not_gone(watched: Watched) -> None:
    unknown = Response(status=404)
    watched.expect(ChangeKind.SCHEDULED, 1, document(1, [event(1)]))

    watched.expect(
        ChangeKind.STARTED,
        1,
        document(2),
        unknown,
        document(3, [event(1)]),
        document(4),
        document(5, [event(1, "Started")]),
    )
    watched.expect(ChangeKind.GONE, 1, document(6), document(7))


def test_event_that_is_missed_is_looked_for_without_waiting_for_a_change(watched: Watched) -> None:
    scene = watched.scene
    watched.expect(ChangeKind.SCHEDULED, 1, document(1, [event(1)], etag="1"))
    watched.expect(
        ChangeKind.GONE,
        1,
        parked(scene, NOT_MODIFIED, 1),
        parked(scene, document(2, etag="2"), 9),
        Response(status=404),
        document(2, etag="2"),
    )

    assert scene.pauses == [1]
    assert "If-None-Match" not in scene.requests[-1].headers


def test_one_look_is_two_if_an_event_is_missed(scene: Scene) -> None:
    watch = Watch(scene.conversations(), known(event(1), event(2)))
    first, second = document(1), document(2, [event(2), event(3)])

    changes = scene.play(watch.all_changes(), first, Response(status=404), second)

    told = [(change.kind, int(change.event.event_id[-12:], 16)) for change in changes]
    assert told == [(ChangeKind.SCHEDULED, 3), (ChangeKind.GONE, 1)]
    assert scene.pauses == [1]


@pytest.mark.parametrize("trouble", [reply([]), Response(status=503), REFUSED], ids=str)
def test_end_is_asked_for_again_for_five_seconds(watched: Watched, trouble: Answer) -> None:
    watched.expect(ChangeKind.SCHEDULED, 1, document(1, [event(1), event(2)]))
    watched.expect(ChangeKind.SCHEDULED, 2)

    canceled = reply({"event_status": "Canceled"})
    watched.expect(ChangeKind.CANCELED, 1, document(2, [event(2)]), trouble, trouble, canceled)
    asked = [trouble] * 4
    watched.expect(ChangeKind.GONE, 2, document(3), *asked, document(3), *asked)


def test_plain_azure_is_not_asked_about_every_event(watched: Watched) -> None:
    watched.expect(ChangeKind.SCHEDULED, 1, document(1, [event(1), event(2), event(3)]))
    watched.expect(ChangeKind.SCHEDULED, 2)
    watched.expect(ChangeKind.SCHEDULED, 3)

    left = document(2, [event(3)])
    watched.expect(ChangeKind.GONE, 1, left, Response(status=404), left)
    watched.expect(ChangeKind.GONE, 2)
    watched.scene.now += 60
    watched.expect(ChangeKind.CANCELED, 3, document(3), reply({"event_status": "Canceled"}))


def test_news_come_before_what_needs_another_question(watched: Watched) -> None:
    watched.expect(ChangeKind.SCHEDULED, 1, document(1, [event(1)]))

    replaced = document(2, [event(2)])
    watched.expect(ChangeKind.SCHEDULED, 2, replaced)
    watched.expect(ChangeKind.GONE, 1, Response(status=404), replaced)


def test_event_whose_date_moved_is_scheduled_again(watched: Watched) -> None:
    moved = event(1, NotBefore="Mon, 19 Sep 2016 19:29:47 GMT")
    watched.expect(ChangeKind.SCHEDULED, 1, document(1, [event(1)]))

    change = watched.expect(ChangeKind.SCHEDULED, 1, document(2, [moved]))

    assert change.event.not_before is not None
    assert change.event.not_before.hour == 19


def test_both_forms_of_a_date_are_the_same_date(watched: Watched) -> None:
    iso = event(1, NotBefore="2016-09-19T18:29:47Z")
    watched.expect(ChangeKind.SCHEDULED, 1, document(1, [event(1)]))

    watched.expect(ChangeKind.STARTED, 1, document(2, [iso]), document(3, [event(1, "Started")]))


def test_start_is_told_once(watched: Watched) -> None:
    described = event(1, "Started", Description="more")
    watched.expect(ChangeKind.STARTED, 1, document(1, [event(1, "Started")]))

    watched.expect(
        ChangeKind.SCHEDULED, 2, document(2, [described]), document(3, [described, event(2)])
    )


def test_words_that_nobody_knows_come_through(watched: Watched) -> None:
    odd = event(1, EventType="SpotRebalanceRecommendation", NotBefore="one day")

    change = watched.expect(ChangeKind.SCHEDULED, 1, document(1, [odd]))

    assert change.event.event_type == "SpotRebalanceRecommendation"
    assert change.event.not_before is None


@pytest.mark.parametrize("kind", [ChangeKind.COMPLETED, ChangeKind.CANCELED])
@pytest.mark.parametrize("before", ["Scheduled", "Started", None])
def test_end_that_a_document_shows_is_told_once(
    watched: Watched, before: str | None, kind: ChangeKind
) -> None:
    if before:
        watched.next(document(1, [event(1, before)]))
    ended = event(1, kind.capitalize())
    described = event(1, kind.capitalize(), Description="more")

    watched.expect(kind, 1, document(2, [ended]))

    watched.expect(
        ChangeKind.SCHEDULED, 2, document(3, [described]), document(4), document(5, [event(2)])
    )


def test_one_end_is_enough(watched: Watched) -> None:
    watched.expect(ChangeKind.COMPLETED, 1, document(1, [event(1, "Completed")]))

    canceled = event(1, "Canceled")
    watched.expect(
        ChangeKind.SCHEDULED, 2, document(2, [canceled]), document(3, [canceled, event(2)])
    )


def test_event_that_comes_back_after_its_end_is_told_anew(watched: Watched) -> None:
    watched.expect(ChangeKind.CANCELED, 1, document(1, [event(1, "Canceled")]))

    watched.expect(ChangeKind.SCHEDULED, 1, document(2), document(3, [event(1)]))


@pytest.mark.parametrize("word", ["Dreaming", "", "Approved"])
def test_status_that_nobody_knows_is_no_change(watched: Watched, word: str) -> None:
    odd = event(1, word)
    watched.expect(ChangeKind.SCHEDULED, 1, document(1, [event(1)]))

    watched.expect(
        ChangeKind.SCHEDULED,
        2,
        document(2, [odd]),
        document(3, [event(1)]),
        document(4, [odd, event(2)]),
    )


def test_nothing_is_lost_when_a_known_status_follows_an_unknown_one(watched: Watched) -> None:
    odd, started = event(1, "Dreaming"), event(1, "Started")
    moved = event(1, NotBefore="Mon, 19 Sep 2016 19:29:47 GMT")

    watched.expect(ChangeKind.SCHEDULED, 1, document(1, [odd]), document(2, [event(1)]))
    watched.expect(ChangeKind.SCHEDULED, 1, document(3, [odd]), document(4, [moved]))
    watched.expect(ChangeKind.STARTED, 1, document(5, [odd]), document(6, [started]))
    change = watched.expect(
        ChangeKind.COMPLETED,
        1,
        document(7, [odd]),
        document(8, [started]),
        document(9, [odd]),
        document(10),
        reply({"event_status": "Completed"}),
    )

    assert change.event.event_status == "Dreaming"


def test_event_of_which_nothing_was_told_leaves_without_a_word(watched: Watched) -> None:
    odd = document(1, [event(1, "Dreaming")])

    watched.expect(ChangeKind.SCHEDULED, 2, odd, document(2), document(3, [event(2)]))


def test_incarnation_that_begins_anew_changes_nothing(watched: Watched) -> None:
    watched.expect(ChangeKind.SCHEDULED, 1, document(900, [event(1)], etag="900"))

    change = watched.expect(
        ChangeKind.SCHEDULED,
        2,
        document(0, [event(1)], etag="0"),
        document(1, [event(1), event(2)], etag="1"),
    )

    assert change.document_incarnation == 1


def test_incarnation_that_comes_again_with_other_content_is_seen_within_ten_seconds(
    watched: Watched,
) -> None:
    watched.expect(ChangeKind.SCHEDULED, 1, document(5, [event(1)], etag="5"))
    began = watched.scene.now

    watched.expect(
        ChangeKind.SCHEDULED, 2, *[NOT_MODIFIED] * 10, document(5, [event(1), event(2)], etag="5")
    )

    assert "If-None-Match" not in watched.scene.requests[-1].headers
    assert watched.scene.now - began == pytest.approx(10, abs=2)


def test_server_that_does_not_wait_is_polled_once_a_second(scene: Scene) -> None:
    watched = Watched(scene, seeded(1))
    watched.expect(ChangeKind.SCHEDULED, 1, document(1, [event(1)], etag="1"))

    second = document(2, [event(1), event(2)], etag="2")
    watched.expect(ChangeKind.SCHEDULED, 2, *[NOT_MODIFIED] * 8, second)
    watched.expect(ChangeKind.SCHEDULED, 3, document(3, [event(1), event(2), event(3)], etag="3"))

    assert len(scene.pauses) == 9
    assert all(0.9 <= pause <= 1.1 for pause in scene.pauses)
    assert len(set(scene.pauses)) > 5
    assert {(request.timeout, request.wait) for request in scene.requests[1:]} == {(10, 1)}
    assert scene.requests[-1].headers["If-None-Match"] == "2"


def test_server_without_etags_is_polled_once_a_second(watched: Watched) -> None:
    one = document(1, [event(1)])
    watched.expect(ChangeKind.SCHEDULED, 1, one)

    watched.expect(ChangeKind.SCHEDULED, 2, one, one, document(2, [event(1), event(2)]))

    assert watched.scene.pauses == [1, 1, 1]
    assert all("Prefer" not in request.headers for request in watched.scene.requests)


def test_server_that_waits_is_let_wait(watched: Watched) -> None:
    scene = watched.scene
    watched.expect(ChangeKind.SCHEDULED, 1, document(1, [event(1)], etag="1"))

    watched.expect(
        ChangeKind.SCHEDULED,
        2,
        parked(scene, NOT_MODIFIED, 1),
        parked(scene, document(2, [event(1), event(2)], etag="2"), 20),
    )
    watched.expect(
        ChangeKind.STARTED,
        1,
        parked(scene, document(3, [event(1, "Started"), event(2)], etag="3"), 0),
    )
    watched.expect(
        ChangeKind.COMPLETED,
        1,
        parked(scene, document(4, [event(2)], etag="4"), 0),
        reply({"event_status": "Completed"}),
    )
    watched.expect(
        ChangeKind.STARTED, 2, parked(scene, document(5, [event(2, "Started")], etag="5"), 9)
    )

    assert scene.pauses == []
    polls = [request for request in scene.requests if "scheduledevents" in request.path]
    assert [poll.headers.get("Prefer") for poll in polls] == [None, "wait=1", *["wait=60"] * 4]
    assert [poll.wait for poll in polls] == [0, 1, 60, 60, 60, 60]


def test_server_that_only_claims_to_wait_is_not_polled_without_end(watched: Watched) -> None:
    scene = watched.scene
    watched.expect(ChangeKind.SCHEDULED, 1, document(1, [event(1)], etag="1"))

    hasty = parked(scene, NOT_MODIFIED, 0)
    same = parked(scene, document(1, [event(1)], etag="1"), 0)
    watched.expect(
        ChangeKind.SCHEDULED, 2, hasty, same, hasty, document(2, [event(1), event(2)], etag="2")
    )

    assert scene.pauses == [1, 1, 1]


def test_trouble_never_ends_a_watch(watched: Watched) -> None:
    proxy = Response(status=200, body=b"<html>")
    watched.expect(ChangeKind.SCHEDULED, 1, document(1, [event(1)], etag="1"))

    watched.expect(
        ChangeKind.STARTED,
        1,
        *[REFUSED] * 50,
        Response(status=200),
        proxy,
        Response(status=503),
        document(1, [event(1, "Started")], etag="1"),
    )

    assert sum(watched.scene.pauses) > 140
    assert max(watched.scene.pauses) == 3
    assert "If-None-Match" not in watched.scene.requests[-1].headers


def test_first_document_may_be_long_in_coming(watched: Watched) -> None:
    watched.expect(ChangeKind.SCHEDULED, 1, *[REFUSED] * 20, document(1, [event(1)]))


def test_retry_after_of_an_hour_is_cut_to_ten_seconds(watched: Watched) -> None:
    busy = Response(status=429, headers={"retry-after": "3600"})

    watched.expect(ChangeKind.SCHEDULED, 1, busy, document(1, [event(1)]))

    assert watched.scene.pauses[0] == 10


def test_refusal_ends_a_watch(watched: Watched) -> None:
    with pytest.raises(RefusedError):
        watched.next(Response(status=403))


def test_trouble_of_a_watch_is_logged_when_it_changes(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "forewarn.client")

    watched.expect(ChangeKind.SCHEDULED, 1, *[REFUSED] * 9, document(1, [event(1)]))

    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]


def known(*items: dict[str, Any]) -> list[Event]:
    return [read_event(item) for item in items]


def test_events_that_are_known_are_told_only_if_they_have_changed(scene: Scene) -> None:
    watch = Watch(scene.conversations(), known(event(1), event(2), event(3), event(4, "Started")))
    later = "Mon, 19 Sep 2016 19:29:47 GMT"
    shown = [event(1), event(2, NotBefore=later), event(4, "Started"), event(5)]

    changes = scene.play(
        watch.all_changes(), document(7, shown), reply({"event_status": "Canceled"})
    )

    told = [(change.kind, int(change.event.event_id[-12:], 16)) for change in changes]
    assert told == [
        (ChangeKind.SCHEDULED, 2),
        (ChangeKind.SCHEDULED, 5),
        (ChangeKind.CANCELED, 3),
    ]
    assert {change.document_incarnation for change in changes} == {7}


def test_watch_goes_on_from_the_events_that_are_known(scene: Scene) -> None:
    watch = Watch(scene.conversations(), known(event(1)))

    change = scene.play(watch.next_change(), document(1), Response(status=404), document(1))

    assert (change.kind, change.event) == (ChangeKind.GONE, *known(event(1)))


def test_one_look_at_an_empty_document_brings_nothing(scene: Scene) -> None:
    assert scene.play(Watch(scene.conversations()).all_changes(), document(1)) == ()


def test_each_poll_is_observed(scene: Scene) -> None:
    seen: list[Polled] = []
    watch = Watch(scene.conversations(), (), seen.append)

    scene.play(watch.next_change(), REFUSED, document(0), document(3, [event(1)]))

    assert [(polled.trouble, polled.document_incarnation) for polled in seen] == [
        ("it refuses connections", 0),
        (None, 0),
        (None, 3),
    ]
