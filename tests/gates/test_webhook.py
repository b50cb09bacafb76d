"""Gates that somebody else decides about."""

from datetime import timedelta

import pytest
from tests.gates.conftest import NOW, SOON, put
from tests.web_site import OUTBOUND, Site

from forewarn.domain.gate import Question
from forewarn.gates.http import webhook_gate
from forewarn.gates.verdict import GateVerdict
from forewarn.outbound.client import OutboundRequest
from forewarn.outbound.transport import sign


def ask(question: Question, url: str, *, secret: str | None = None) -> GateVerdict:
    request = OutboundRequest(
        method="GET", url=url, timeout=SOON, headers={"X-Key": "k"}, secret=secret
    )
    return put(webhook_gate(OUTBOUND, request), question)


def test_question_is_posted_and_signed(question: Question, site: Site) -> None:
    site.body = b'{"open": true}'

    ask(question, f"{site.url}/change", secret="hush")  # noqa: S106

    (request,) = site.received
    assert (request.path, request.headers["x-key"]) == ("/change", "k")
    assert request.headers["content-type"] == "application/json"
    assert request.headers["forewarn-signature"] == sign("hush", request.body, NOW)
    assert request.json() == {
        "gate": "probe",
        "maintenance_id": "m1",
        "scope_ids": ["availability-set/web", "virtual-machine/solo"],
        "steps_done": 2,
    }


def test_question_is_not_signed_without_a_secret(question: Question, site: Site) -> None:
    ask(question, site.url)

    assert "forewarn-signature" not in site.received[0].headers


@pytest.mark.parametrize(
    ("body", "verdict"),
    [
        (b'{"open": true}', GateVerdict(is_open=True, output="")),
        (
            b'{"open": false, "message": "CHG-7 is not\\u001b approved", "retry_after": 90}',
            GateVerdict(
                is_open=False,
                output="CHG-7 is not approved",
                retry_after=timedelta(seconds=90),
            ),
        ),
        (b'{"open": true, "ticket": 7}', GateVerdict(is_open=True, output="")),
    ],
)
def test_answer_decides(question: Question, site: Site, body: bytes, verdict: GateVerdict) -> None:
    site.body = body

    assert ask(question, site.url) == verdict


@pytest.mark.parametrize(
    "content_type",
    [None, "text/plain", "text/html; charset=utf-16", "text/plain; charset=base64", "?"],
)
def test_answer_is_read_whatever_the_content_type_says(
    question: Question, site: Site, content_type: str | None
) -> None:
    site.headers = {} if content_type is None else {"Content-Type": content_type}
    site.body = '{"open": true, "message": "fertig geprüft"}'.encode()

    assert ask(question, site.url) == GateVerdict(is_open=True, output="fertig geprüft")


def test_answer_is_read_as_utf_8_with_replacements(question: Question, site: Site) -> None:
    site.headers = {"Content-Type": "application/json; charset=iso-8859-1"}
    site.body = '{"open": true, "message": "geprüft"}'.encode("iso-8859-1")

    assert ask(question, site.url) == GateVerdict(is_open=True, output="gepr\ufffdft")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"yes",
        b"[" * 1_500,
        b"[true]",
        b"{}",
        b'{"open": "true"}',
        b'{"open": 1}',
        b'{"open": true, "message": 7}',
        b'{"open": true, "retry_after": 0}',
        b'{"open": true, "retry_after": 1e99}',
        b'{"open": true, "retry_after": NaN}',
    ],
)
def test_answer_that_is_none_is_shut(question: Question, site: Site, body: bytes) -> None:
    site.body = body

    verdict = ask(question, site.url)

    assert not verdict.is_open
    assert verdict.output.startswith('The answer is not {"open": true} or {"open": false}:')


def test_refusal_and_nobody_are_shut(question: Question, site: Site, nowhere: str) -> None:
    site.status, site.body = 503, b'{"open": true}'

    assert ask(question, site.url) == GateVerdict(
        is_open=False, output='503 Service Unavailable\n{"open": true}'
    )
    assert not ask(question, nowhere).is_open
