"""Gates that look at an address."""

import pytest
from tests.gates.conftest import SOON, put
from tests.web_site import OUTBOUND, Site

from forewarn.domain.gate import Question
from forewarn.gates.http import http_gate
from forewarn.gates.verdict import MOST_OUTPUT, GateVerdict
from forewarn.outbound.client import OutboundRequest


def ask(question: Question, url: str, *, seconds: float = SOON, **more: object) -> GateVerdict:
    request = OutboundRequest(method="GET", url=url, timeout=seconds, headers={"X-Key": "k"})
    return put(http_gate(OUTBOUND, request, **more), question)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("status", "expected", "contains", "is_open"),
    [
        (200, None, "", True),
        (204, None, "", True),
        (301, None, "", False),
        (404, None, "", False),
        (503, None, "", False),
        (503, 503, "", True),
        (200, 503, "", False),
        (200, None, "fine", True),
        (200, None, "bad", False),
        (500, 500, "bad", False),
    ],
)
def test_status_and_text_decide(
    question: Question,
    site: Site,
    status: int,
    expected: int | None,
    contains: str,
    is_open: bool,  # noqa: FBT001
) -> None:
    site.status = status
    site.body = b"" if status == 204 else b"all is fine"

    verdict = ask(question, f"{site.url}/ready?full=1", status=expected, contains=contains)

    assert verdict.is_open == is_open
    assert verdict.output.startswith(str(status))
    (request,) = site.received
    assert (request.path, request.headers["x-key"]) == ("/ready?full=1", "k")


def test_body_is_utf_8_whatever_the_header_says(question: Question, site: Site) -> None:
    site.headers = {"Content-Type": "text/plain; charset=utf-16"}
    site.body = "geprüft \N{CHECK MARK}".encode() + b"\xff"

    verdict = ask(question, site.url, contains="geprüft")

    assert verdict.is_open
    assert verdict.output.endswith("geprüft \N{CHECK MARK}\ufffd")


def test_nobody_there_is_shut(question: Question, nowhere: str) -> None:
    verdict = ask(question, nowhere)

    assert not verdict.is_open
    assert verdict.output.startswith("The request failed: Connection refused.")


@pytest.mark.parametrize("is_silent", [True, False])
def test_silence_and_drops_are_shut_at_the_time_out(
    question: Question,
    site: Site,
    is_silent: bool,  # noqa: FBT001
) -> None:
    site.is_silent, site.seconds_per_byte, site.body = is_silent, 0.1, b"x" * 200

    verdict = ask(question, site.url, seconds=0.5)

    assert not verdict.is_open
    assert verdict.output == "No answer within 0.5 seconds."


def test_output_is_the_last_of_it_and_harmless(question: Question, site: Site) -> None:
    site.body = b"x" * 3_000_000 + b"never read"
    assert ask(question, site.url).output == "x" * MOST_OUTPUT
    site.body = b"\x1b[31mred\x07\xff\r\n\tand\x00 more\n\n"

    assert ask(question, site.url).output == "200 OK\nred\ufffd\n and more"
