"""In which order endpoints are tried, and which answer is that of a metadata server."""

from collections.abc import Mapping
from ipaddress import IPv4Address
from typing import NoReturn

import pytest
from tests.unit.client.conftest import Scene

from forewarn.client._discovery import Search, Sources, find_flaw
from forewarn.client._endpoints import Endpoint
from forewarn.client._errors import UnavailableError
from forewarn.client._messages import Conversation, NoAnswer, Pause, Request, Response

DOCUMENT = Response(status=200, body=b'{"DocumentIncarnation":0,"Events":[]}')
SILENCE = NoAnswer("it did not answer in time")

WELL_KNOWN = "169.254.169.254"
LEASED = "168.63.129.16"
OFFERED = "10.0.0.4"


def knowing(*leased: str, offered: str | None = None) -> Sources:
    """Return sources where the environment says nothing, and DHCP takes all the time it has."""

    def ask(seconds: float) -> Conversation[IPv4Address | None]:
        yield Pause(seconds)
        return IPv4Address(offered) if offered else None

    return Sources(
        read_environment=lambda: None,
        find_addresses=lambda: map(IPv4Address, leased),
        ask_for_address=ask,
    )


def search(sources: Sources, answers: Mapping[str, Response | NoAnswer]) -> tuple[str, list[str]]:
    """Return the host that is found, and the hosts that were asked, where others are silent."""
    asked: list[str] = []
    conversation = Search(Scene().conduct(), sources).find_endpoint()
    try:
        step = next(conversation)
        while True:
            match step:
                case Request(endpoint=endpoint):
                    asked.append(endpoint.host)
                    step = conversation.send(answers.get(endpoint.host, SILENCE))
                case Pause():
                    step = conversation.send(None)
    except StopIteration as end:
        return end.value.host, asked


def must_not_be_asked(*_: object) -> NoReturn:
    pytest.fail("this source was not needed")


def test_environment_wins_and_nobody_is_asked(scene: Scene) -> None:
    told = Endpoint(host="127.0.0.1", port=8169, prefix="/vm/web-0")
    sources = Sources(
        read_environment=lambda: told,
        find_addresses=must_not_be_asked,
        ask_for_address=must_not_be_asked,
    )

    assert scene.play(Search(scene.conduct(), sources).find_endpoint()) == told


def test_well_known_address_that_answers_is_enough() -> None:
    sources = Sources(
        read_environment=lambda: None,
        find_addresses=lambda: (must_not_be_asked() for _ in "a"),
        ask_for_address=must_not_be_asked,
    )

    assert search(sources, {WELL_KNOWN: DOCUMENT}) == (WELL_KNOWN, [WELL_KNOWN])


def test_leases_come_before_the_dhcp_server() -> None:
    sources = knowing("10.9.9.9", LEASED, offered=OFFERED)

    found = search(sources, {LEASED: DOCUMENT, OFFERED: DOCUMENT})

    assert found == (LEASED, [WELL_KNOWN, "10.9.9.9", LEASED])


def test_dhcp_server_is_asked_when_no_lease_helps() -> None:
    found = search(knowing(LEASED, offered=OFFERED), {OFFERED: DOCUMENT})

    assert found == (OFFERED, [WELL_KNOWN, LEASED, OFFERED])


def test_nothing_is_asked_twice() -> None:
    sources = knowing(LEASED, WELL_KNOWN, LEASED, offered=OFFERED)

    _, asked = search(sources, {OFFERED: DOCUMENT})

    assert asked == [WELL_KNOWN, LEASED, OFFERED]


def test_nobody_answering_is_trouble_that_says_what_was_tried() -> None:
    with pytest.raises(UnavailableError) as error:
        search(knowing(LEASED), {LEASED: Response(status=404)})

    assert error.value.endpoint == f"http://{WELL_KNOWN}"
    assert error.value.trouble == f"it did not answer in time; {LEASED}: it answered 404"


def test_probe_is_a_short_poll_of_the_newest_version(scene: Scene) -> None:
    step = next(Search(scene.conduct(), knowing()).find_endpoint())

    assert step == Request(
        endpoint=Endpoint(host=WELL_KNOWN),
        path="/metadata/scheduledevents?api-version=2020-07-01",
        headers={"Metadata": "true"},
        timeout=2.0,
    )


def test_probes_are_given_more_time_at_every_search(scene: Scene) -> None:
    search = Search(scene.conduct(), knowing())

    for _ in range(4):
        with pytest.raises(UnavailableError):
            scene.play(search.find_endpoint(), SILENCE)

    assert [request.timeout for request in scene.requests] == [2, 4, 8, 10]


def test_dhcp_server_is_asked_for_as_long_as_a_request_takes_and_once_a_minute(
    scene: Scene,
) -> None:
    search = Search(scene.conduct(), knowing())

    for _ in range(7):
        with pytest.raises(UnavailableError):
            scene.play(search.find_endpoint(), SILENCE)
        scene.now += 10

    assert scene.pauses == [10, 10]


def test_offer_is_kept_though_nobody_answers_there_yet(scene: Scene) -> None:
    search = Search(scene.conduct(), knowing(offered=OFFERED))
    with pytest.raises(UnavailableError):
        scene.play(search.find_endpoint(), SILENCE, SILENCE)

    found = scene.play(search.find_endpoint(), SILENCE, DOCUMENT)

    assert found == Endpoint(host=OFFERED)
    assert len(scene.pauses) == 1


@pytest.mark.parametrize(
    "answer",
    [DOCUMENT, Response(status=200), *(Response(status=s) for s in (410, 429, 500, 503))],
)
def test_metadata_server_answers_like_this(answer: Response) -> None:
    assert find_flaw(answer) is None


@pytest.mark.parametrize(
    "answer",
    [
        SILENCE,
        Response(status=200, body=b"<html>Welcome to nginx!</html>"),
        Response(status=200, body=b'{"latest": {}}'),
        Response(status=200, body=b"[]"),
        *(Response(status=status) for status in (204, 301, 302, 400, 401, 403, 404, 407)),
    ],
)
def test_somebody_else_answers_like_this(answer: Response | NoAnswer) -> None:
    assert find_flaw(answer)
