"""Gates that look at an address."""

import time
from datetime import timedelta

import pytest
from tests.gates.conftest import NOW, SOON, Site

from forewarn.domain.gate import Question
from forewarn.gates.http import HttpGate
from forewarn.gates.verdict import MOST_OUTPUT, GateVerdict


def ask(question: Question, url: str, *, seconds: float = SOON, **more: object) -> GateVerdict:
    gate = HttpGate(url, timeout=timedelta(seconds=seconds), headers={"X-Key": "k"}, **more)  # type: ignore[arg-type]
    try:
        return gate.ask(question, now=NOW)
    finally:
        gate.close()


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


def test_it_follows_nobody_elsewhere(question: Question, site: Site) -> None:
    site.status, site.headers = 302, {"Location": f"{site.url}/elsewhere"}

    assert not ask(question, site.url).is_open
    assert len(site.received) == 1


def test_nobody_there_is_shut(question: Question, nowhere: str) -> None:
    verdict = ask(question, nowhere)

    assert not verdict.is_open
    assert verdict.output.startswith("The request failed: [Errno 111] ")


@pytest.mark.parametrize("is_silent", [True, False])
def test_silence_and_drops_are_shut_at_the_time_out(
    question: Question,
    site: Site,
    is_silent: bool,  # noqa: FBT001
) -> None:
    """A time-out for each read would begin anew with every byte."""
    site.is_silent, site.seconds_per_byte, site.body = is_silent, 0.1, b"x" * 200
    begun = time.monotonic()

    verdict = ask(question, site.url, seconds=0.5)

    assert not verdict.is_open
    assert verdict.output == "No answer within 0.5 seconds."
    assert time.monotonic() - begun < SOON


def test_output_is_the_last_of_it_and_harmless(question: Question, site: Site) -> None:
    site.body = b"x" * 3_000_000 + b"never read"
    assert ask(question, site.url).output == "x" * MOST_OUTPUT
    site.body = b"\x1b[31mred\x07\xff\r\n\tand\x00 more\n\n"

    assert ask(question, site.url).output == "200 OK\nred\ufffd\n and more"
