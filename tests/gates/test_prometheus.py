"""Gates that ask Prometheus: one that answers in its shape, and the real one."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.error import URLError
from urllib.parse import parse_qs, urlsplit
from urllib.request import urlopen

import pytest
from tests.gates.conftest import SOON, put, wait_for
from tests.needs import need
from tests.ports import free_port
from tests.web_site import OUTBOUND, Site

from forewarn.domain.gate import Question
from forewarn.gates.http import ExpectationError, prometheus_gate, read_expectation
from forewarn.gates.verdict import GateVerdict
from forewarn.outbound.client import OutboundRequest

CLIENTS = Path(__file__).parent.parent.parent / ".venv" / "clients"
START_SECONDS = 30


def ask(question: Question, url: str, query: str, expect: str) -> GateVerdict:
    headers = {"Authorization": "Bearer k"}
    request = OutboundRequest(method="GET", url=url, timeout=SOON, headers=headers)
    expectation = read_expectation(expect)
    return put(prometheus_gate(OUTBOUND, request, query=query, expectation=expectation), question)


def vector(*values: str) -> bytes:
    result = [
        {"metric": {"job": "web", "n": str(number)}, "value": [1.5, value]}
        for number, value in enumerate(values)
    ]
    return encode({"resultType": "vector", "result": result})


def encode(data: object) -> bytes:
    return json.dumps({"status": "success", "data": data}).encode()


@pytest.mark.parametrize(
    ("body", "expect", "is_open", "output"),
    [
        (vector("1"), "> 0.99", True, '{job="web", n="0"} 1'),
        (vector("1", "0.5"), "> 0.99", False, 'Expected > 0.99, but got:\n{job="web", n="1"} 0.5'),
        (vector("0"), "== 0", True, '{job="web", n="0"} 0'),
        (vector("0"), "!= 0", False, 'Expected != 0, but got:\n{job="web", n="0"} 0'),
        (vector("-3"), "<= -3", True, '{job="web", n="0"} -3'),
        (vector("2"), "<1e3", True, '{job="web", n="0"} 2'),
        (vector("+Inf"), ">=1", True, '{job="web", n="0"} +Inf'),
        (vector("NaN"), "!= 0", False, 'Expected != 0, but got:\n{job="web", n="0"} NaN'),
        (vector(), "> 0", False, "The query returned no result."),
        (encode({"resultType": "scalar", "result": [1.5, "7"]}), "> 6", True, "7"),
        (
            encode({"resultType": "vector", "result": [{"metric": {}, "value": [1, "7"]}]}),
            "> 6",
            True,
            "7",
        ),
    ],
)
def test_every_value_has_to_be_as_expected(
    question: Question,
    site: Site,
    body: bytes,
    expect: str,
    is_open: bool,  # noqa: FBT001
    output: str,
) -> None:
    site.body = body

    verdict = ask(question, f"{site.url}/prom/", 'up{job="web"} + 0', expect)

    assert verdict == GateVerdict(is_open=is_open, output=output)
    (request,) = site.received
    asked = urlsplit(request.path)
    assert asked.path == "/prom/api/v1/query"
    assert parse_qs(asked.query) == {"query": ['up{job="web"} + 0']}
    assert request.headers["authorization"] == "Bearer k"


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (400, b'{"status":"error","errorType":"bad_data","error":"parse error"}'),
        (200, b"<html>log in</html>"),
        (200, b"[]"),
        (200, b'{"status":"success"}'),
        (200, encode({"resultType": "matrix", "result": []})),
        (200, encode({"resultType": "vector", "result": [{"metric": {}}]})),
        (200, encode({"resultType": "scalar", "result": [1, "many"]})),
    ],
)
def test_any_other_answer_is_shut_and_shown(
    question: Question, site: Site, status: int, body: bytes
) -> None:
    site.status, site.body = status, body

    verdict = ask(question, site.url, "up", "> 0")

    assert not verdict.is_open
    assert verdict.output.startswith(f"Unexpected response from Prometheus: {status}")
    assert verdict.output.endswith(body.decode())


def test_nobody_there_is_shut(question: Question, nowhere: str) -> None:
    assert not ask(question, nowhere, "up", "> 0").is_open


@pytest.mark.parametrize("text", ["", "0.99", "> many", "=> 1", "> 1.2.3", "> 1 or 2", "> nan"])
def test_expectation_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ExpectationError, match="is not a valid comparison"):
        read_expectation(text)


@pytest.fixture
def prometheus(tmp_path: Path) -> Iterator[str]:
    """A real Prometheus that measures itself."""
    program = shutil.which("prometheus") or CLIENTS / "prometheus" / "usr" / "bin" / "prometheus"
    need(program)
    address = f"127.0.0.1:{free_port()}"
    scrape = {
        "job_name": "self",
        "scrape_interval": "1s",
        "static_configs": [{"targets": [address]}],
    }
    (tmp_path / "prometheus.yml").write_text(
        json.dumps({"scrape_configs": [scrape]}), encoding="utf-8"
    )
    command = [
        program,
        f"--config.file={tmp_path / 'prometheus.yml'}",
        f"--storage.tsdb.path={tmp_path / 'data'}",
        f"--web.listen-address={address}",
        "--log.level=error",
    ]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            yield f"http://{address}"
        finally:
            process.kill()


def has_measured(url: str) -> bool:
    with suppress(URLError, OSError), urlopen(f"{url}/api/v1/query?query=up", timeout=5) as answer:
        return bool(json.load(answer)["data"]["result"])
    return False


def test_real_prometheus_is_understood(question: Question, prometheus: str) -> None:
    wait_for(lambda: has_measured(prometheus), "Prometheus measures nothing", START_SECONDS)

    up = ask(question, prometheus, 'avg(up{job="self"})', "> 0.99")
    down = ask(question, prometheus, 'up{job="self"} * 0', "> 0.99")
    nothing = ask(question, prometheus, 'up{job="other"}', "> 0")
    mistake = ask(question, prometheus, "up{", "> 0")
    scalar = ask(question, prometheus, "scalar(vector(3))", "== 3")

    assert (up.is_open, up.output) == (True, "1")
    assert not down.is_open
    assert 'job="self"' in down.output
    assert nothing == GateVerdict(is_open=False, output="The query returned no result.")
    assert not mistake.is_open
    assert "parse error" in mistake.output
    assert scalar.is_open
