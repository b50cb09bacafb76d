"""What a failed assertion says of the requests in its first line, case by case."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from forewarn.domain.names import VmName
from forewarn.ports.journal import JournalEntry
from forewarn.protocol.start_requests import encode_start_requests
from forewarn.protocol.vocabulary import EventId, event_id
from forewarn.testing.conduct import Evidence

NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)
WEB, OTHER = VmName("web-0"), VmName("web-1")
MINE, FREEZE, AGAIN = event_id("A1"), event_id("B2"), event_id("C3")
TITLES = {MINE: "Reboot of web-0", FREEZE: "Freeze of web-1", AGAIN: "Reboot of web-0"}
PATH = "/metadata/scheduledevents?api-version=2020-07-01"

GET = JournalEntry(
    sequence=1,
    vm=WEB,
    at=NOW - timedelta(seconds=0.3),
    maintenance_time=NOW,
    method="GET",
    path=PATH,
    status=200,
    answer=b'{"DocumentIncarnation":1,"Events":[]}',
    seconds=0.1,
)
SHOWN = replace(GET, answer=b'{"DocumentIncarnation":2,"Events":[{"EventId":"A1"}]}')
HEADLESS = replace(
    GET, status=400, answer=b'{ "error": "Bad request: . Required metadata header not specified" }'
)
UNKNOWN = replace(
    GET, method="POST", status=400, answer=b'{ "error": "Bad request. EventId is unknown" }'
)
WAITING = replace(GET, at=NOW - timedelta(seconds=1.5), status=None, answer=b"", seconds=None)
JUST_COME = replace(WAITING, at=GET.at)
STRANGER = replace(GET, vm=None, path=f"/vm/web-9{PATH}", status=404)
UNDATED = (
    b'{"error":"Bad request. api-version is invalid or was not specified in the request. '
    b'For more information refer to aka.ms/azureimds"}'
)


def approval(*event_ids: EventId) -> JournalEntry:
    body = encode_start_requests(event_ids)
    return replace(GET, method="POST", status=200, answer=b"", body=body)


@pytest.mark.parametrize(
    ("requests", "said"),
    [
        ([], "web-0 sent no request"),
        ([replace(GET, vm=OTHER)], "web-0 sent no request, but web-1 did"),
        (
            [STRANGER],
            f"web-0 sent no request, but an unknown caller did (last: GET /vm/web-9{PATH}: 404)",
        ),
        (
            [GET, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN],
            "web-0 sent 4 POSTs, all 400 (last: EventId is unknown); last GET 0.2 s ago",
        ),
        ([GET, UNKNOWN], "web-0 sent 1 POST, 400 (EventId is unknown); last GET 0.2 s ago"),
        ([UNKNOWN], "web-0 sent 1 POST, 400 (EventId is unknown); it never polled"),
        (
            [GET, SHOWN],
            "web-0 sent 2 GETs, was shown the event, and sent no POST; last GET 0.2 s ago",
        ),
        ([GET], "web-0 sent 1 GET, was not shown the event, and sent no POST; last GET 0.2 s ago"),
        (
            [HEADLESS, HEADLESS],
            (
                "web-0 sent 2 GETs, all 400 (last: Required metadata header not specified), "
                "was not shown the event, and sent no POST; last GET 0.2 s ago"
            ),
        ),
        (
            [HEADLESS, UNKNOWN],
            (
                "web-0 sent 1 GET, 400 (Required metadata header not specified) and "
                "1 POST, 400 (EventId is unknown); last GET 0.2 s ago"
            ),
        ),
        (
            [replace(GET, status=400, answer=UNDATED), GET, SHOWN],
            (
                "web-0 sent 3 GETs, 1 of them failed (last: 400 api-version is invalid or was "
                "not specified in the request), was shown the event, and sent no POST; "
                "last GET 0.2 s ago"
            ),
        ),
        (
            [replace(GET, status=503, answer=b'{"error":"Service unavailable. Try again"}')],
            (
                "web-0 sent 1 GET, 503 (Service unavailable. Try again), "
                "was not shown the event, and sent no POST; last GET 0.2 s ago"
            ),
        ),
        (
            [replace(GET, status=None, answer=b"", is_reset=True)],
            (
                "web-0 sent 1 GET, reset, "
                "was not shown the event, and sent no POST; last GET 0.2 s ago"
            ),
        ),
        (
            [WAITING],
            (
                "web-0 sent 1 GET, "
                "was not shown the event, and sent no POST; its last GET has waited for 1.5 s"
            ),
        ),
        (
            [HEADLESS, WAITING],
            (
                "web-0 sent 2 GETs, 1 of them failed (last: 400 Required metadata header not "
                "specified), was not shown the event, and sent no POST; "
                "its last GET has waited for 1.5 s"
            ),
        ),
        (
            [SHOWN, UNKNOWN, WAITING],
            "web-0 sent 1 POST, 400 (EventId is unknown); its last GET has waited for 1.5 s",
        ),
        (
            [SHOWN, replace(approval(MINE), status=None, seconds=None)],
            "web-0 sent 1 POST, being answered; last GET 0.2 s ago",
        ),
        (
            [SHOWN, approval(MINE), replace(WAITING, method="POST")],
            "web-0 sent 2 POSTs, 200 and being answered; last GET 0.2 s ago",
        ),
        (
            [SHOWN, UNKNOWN, UNKNOWN, replace(WAITING, method="POST")],
            (
                "web-0 sent 3 POSTs, 2 of them failed (last: 400 EventId is unknown); "
                "last GET 0.2 s ago"
            ),
        ),
        (
            [SHOWN, UNKNOWN, UNKNOWN, replace(JUST_COME, method="POST")],
            "web-0 sent 2 POSTs, all 400 (last: EventId is unknown); last GET 0.2 s ago",
        ),
        (
            [SHOWN, UNKNOWN, JUST_COME],
            "web-0 sent 1 POST, 400 (EventId is unknown); last GET 0.2 s ago",
        ),
        (
            [JUST_COME],
            (
                "web-0 sent 1 GET, "
                "was not shown the event, and sent no POST; its last GET has waited for 0.3 s"
            ),
        ),
        ([SHOWN, approval(MINE)], "web-0 sent 1 POST, 200; last GET 0.2 s ago"),
        (
            [SHOWN, approval(FREEZE)],
            "web-0 sent 1 POST, 200, for Freeze of web-1; last GET 0.2 s ago",
        ),
        (
            [SHOWN, approval(AGAIN)],
            "web-0 sent 1 POST, 200, for another Reboot of web-0; last GET 0.2 s ago",
        ),
        ([SHOWN, approval()], "web-0 sent 1 POST, 200, for no event; last GET 0.2 s ago"),
        (
            [GET, approval()],
            "web-0 sent 1 POST, 200, for no event, and was not shown the event; last GET 0.2 s ago",
        ),
        (
            [SHOWN, replace(approval(MINE), body=b"[")],
            "web-0 sent 1 POST, 200, for no event; last GET 0.2 s ago",
        ),
        (
            [SHOWN, approval(*(event_id(f"D{number}") for number in range(5)))],
            "web-0 sent 1 POST, 200, for D0, D1, D2 and 2 more; last GET 0.2 s ago",
        ),
        (
            [replace(GET, path="/metadata/instance")],
            "web-0 never asked for its document; its last request was GET /metadata/instance: 200",
        ),
        (
            [replace(GET, method="", path="", status=400)],
            "web-0 never asked for its document; its last request was unreadable bytes: 400",
        ),
    ],
)
def test_first_line_says_what_the_machine_did(requests: list[JournalEntry], said: str) -> None:
    assert Evidence(requests=requests, now=NOW, titles=TITLES).describe([WEB], MINE) == said


def test_without_an_event_nothing_is_said_of_one() -> None:
    evidence = Evidence(requests=[HEADLESS, HEADLESS], now=NOW, titles=TITLES)

    assert evidence.describe([WEB]) == (
        "web-0 sent 2 GETs, all 400 (last: Required metadata header not specified) and no POST; "
        "last GET 0.2 s ago"
    )


def test_of_many_machines_three_are_told_of() -> None:
    names = [VmName(f"vm-{number}") for number in range(5)]
    evidence = Evidence(requests=[], now=NOW, titles={})

    assert evidence.describe(names, MINE) == (
        "vm-0 sent no request; vm-1 sent no request; vm-2 sent no request; 2 more virtual machines"
    )


def test_of_many_others_three_are_named() -> None:
    others = [replace(GET, vm=VmName(f"vm-{number}")) for number in range(5)]
    evidence = Evidence(requests=others, now=NOW, titles={})

    assert evidence.describe([WEB], MINE) == (
        "web-0 sent no request, but vm-0, vm-1, vm-2 and 2 more did"
    )
