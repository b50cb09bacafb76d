"""`forewarn scenario record` against endpoints that answer as a test says, on real sockets."""

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path
from time import monotonic, sleep

import pytest

from forewarn.cli.errors import CommandError, ExitCode
from forewarn.cli.recorder import RecordingOrder, record
from forewarn.files.recording import RecordedAnswer, read_recording
from forewarn.transport.requests import LateReplyError, ServerRequest, send

EMPTY = b'{"DocumentIncarnation":0,"Events":[]}'
NEXT = b'{ "DocumentIncarnation": 1, "Events": [] }'
EVERY = 5.0
LONG = 30.0
"""Seconds within which a call ends that does not wait for an answer in drips."""
VERSION = "2020-07-01"


@dataclass(frozen=True, slots=True)
class Said:
    """One answer of the endpoint; a status of 0 hangs up."""

    status: int = 200
    body: bytes = EMPTY
    headers: Mapping[str, str] = field(default_factory=dict)
    has_length: bool = True
    pause: float = 0
    """For how many seconds nothing comes before each byte of the body."""


@dataclass(slots=True)
class Endpoint:
    """What it says, the last thing for ever, and what it was asked."""

    script: list[Said]
    clock: Callable[[], float] = monotonic
    url: str = ""
    asked: list[tuple[float, str, Mapping[str, str]]] = field(default_factory=list)

    @property
    def pauses(self) -> list[float]:
        moments = [moment for moment, _, _ in self.asked]
        return [later - earlier for earlier, later in pairwise(moments)]


@contextmanager
def endpoint(*script: Said, clock: Callable[[], float] = monotonic) -> Iterator[Endpoint]:
    found = Endpoint(list(script), clock)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            headers = {name.lower(): value for name, value in self.headers.items()}
            found.asked.append((found.clock(), f"{self.command} {self.path}", headers))
            said = found.script.pop(0) if len(found.script) > 1 else found.script[0]
            if said.status:
                self.send_response(said.status)
                length = {"Content-Length": str(len(said.body))} if said.has_length else {}
                for name, value in {**said.headers, **length}.items():
                    self.send_header(name, value)
                self.end_headers()
                with suppress(ConnectionError):
                    self.write(said)

        def write(self, said: Said) -> None:
            step = 1 if said.pause else len(said.body) or 1
            for begin in range(0, len(said.body), step):
                sleep(said.pause)
                self.wfile.write(said.body[begin : begin + step])

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        found.url = f"http://127.0.0.1:{server.server_port}/vm/web-0"
        try:
            yield found
        finally:
            server.shutdown()
            thread.join()


Take = Callable[..., tuple[RecordedAnswer, ...]]


class Time:
    """The time of a recording: it passes only while the recording pauses."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[], float]:
    """Let no pause last, so that a slow machine gets as many answers as a fast one."""
    time = Time()
    monkeypatch.setattr("forewarn.cli.recorder.time", time)
    return time.monotonic


def record_into(
    path: Path, asked: Endpoint, seconds: float, *, every: float = EVERY, redact: bool = False
) -> tuple[RecordedAnswer, ...]:
    """Record an endpoint for a while, and return the answers."""
    order = RecordingOrder(
        url=asked.url,
        api_version=VERSION,
        output=path,
        every=every,
        seconds=seconds,
        redact=redact,
    )
    record(order, "2026-11-15T11:11:05Z")
    return read_recording(path).answers


@pytest.fixture
def take(tmp_path: Path, clock: Callable[[], float]) -> Take:  # noqa: ARG001
    """Return a function that records an endpoint for a while, and returns the answers."""
    return partial(record_into, tmp_path / "recording.toml")


def test_only_changes_are_recorded_to_the_byte(take: Take) -> None:
    noise = Said(503, b"\xff\x00", {"Content-Type": "text/html", "Server": "proxy"})
    with endpoint(Said(), Said(), Said(body=NEXT), Said(body=NEXT), noise) as asked:
        answers = take(asked, 10 * EVERY)

    assert [(answer.status, answer.body) for answer in answers] == [
        (200, EMPTY),
        (200, NEXT),
        (503, b"\xff\x00"),
    ]
    assert [dict(answer.headers) for answer in answers] == [{}, {}, {"Content-Type": "text/html"}]
    assert answers[0].at == 0 < answers[1].at < answers[2].at


def test_it_only_reads_one_poll_in_an_interval(take: Take, clock: Callable[[], float]) -> None:
    with endpoint(Said(), clock=clock) as asked:
        take(asked, 10 * EVERY)

    assert {line for _, line, _ in asked.asked} == {
        f"GET /vm/web-0/metadata/scheduledevents?api-version={VERSION}"
    }
    assert all(headers["metadata"] == "true" for _, _, headers in asked.asked)
    assert asked.pauses == [EVERY] * 9


def test_known_document_is_asked_for_conditionally(take: Take) -> None:
    tagged = Said(headers={"ETag": '"0"'})
    with endpoint(tagged, Said(304, b"", {"ETag": '"0"'}), Said(body=NEXT)) as asked:
        answers = take(asked, 12, every=3)

    (_, _, first), (_, _, second), *others = asked.asked
    assert ("if-none-match" in first, second["if-none-match"]) == (False, '"0"')
    assert second["prefer"] == "wait=9", "no longer than there is time"
    assert "if-none-match" not in others[-1][2], "which has no ETag"
    assert [answer.body for answer in answers] == [EMPTY, NEXT]


def test_endpoint_in_trouble_is_left_alone(take: Take, clock: Callable[[], float]) -> None:
    with endpoint(Said(), Said(500, b"broken"), clock=clock) as asked:
        take(asked, 100)

    assert asked.pauses == [EVERY, EVERY, EVERY, EVERY, 8, 16, 30]


def test_retry_after_is_honoured(take: Take, clock: Callable[[], float]) -> None:
    with endpoint(Said(), Said(429, b"", {"Retry-After": "20"}), clock=clock) as asked:
        answers = take(asked, EVERY + 30)

    assert asked.pauses == [EVERY, 20]
    assert answers[1].headers == {"Retry-After": "20"}


def test_silence_is_recorded(take: Take) -> None:
    with endpoint(Said(), Said(0), Said()) as asked:
        answers = take(asked, 5 * EVERY)

    assert [bool(answer.no_answer) for answer in answers] == [False, True, False]


def test_answer_in_drips_does_not_outlast_the_recording(tmp_path: Path) -> None:
    with endpoint(Said(), Said(body=bytes(1_000), pause=0.1)) as asked:
        began = monotonic()
        answers = record_into(tmp_path / "recording.toml", asked, 0.5, every=0.05)
        passed = monotonic() - began

    assert [answer.body for answer in answers] == [EMPTY]
    assert passed < LONG


def test_answer_in_drips_is_late() -> None:
    with endpoint(Said(body=bytes(1_000), pause=0.1)) as asked:
        request = ServerRequest(method="GET", url=asked.url, headers={}, patience=5, within=0.3)
        began = monotonic()
        with pytest.raises(LateReplyError):
            send(request)
        passed = monotonic() - began

    assert 0.25 < passed < LONG


@pytest.mark.parametrize("has_length", [True, False])
def test_answer_that_is_too_large_is_not_kept(take: Take, *, has_length: bool) -> None:
    largest, larger = (
        Said(body=EMPTY.ljust(size), has_length=has_length) for size in (4 * 2**20, 4 * 2**20 + 1)
    )
    with endpoint(largest, larger) as asked:
        first, second = take(asked, 10 * EVERY)

    assert first.body == largest.body
    assert second.no_answer == "its answer is larger than 4 MiB"


@pytest.mark.parametrize("status", [199, 600, 999])
def test_status_that_cannot_be_replayed_is_not_kept(take: Take, status: int) -> None:
    with endpoint(Said(), Said(status)) as asked:
        _, answer = take(asked, 5 * EVERY)

    assert answer.no_answer == f"{status} is not a valid status"


def test_names_can_be_left_out(
    take: Take, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    event = {
        "EventId": "A",
        "EventStatus": "Scheduled",
        "Resources": ["shop-1", "shop-10"],
        "Description": "Move of shop-10 and shop-1.",
    }
    document = {"DocumentIncarnation": 1, "Events": [event]}
    body = json.dumps(document, separators=(",", ":")).encode()
    with endpoint(Said(body=body), Said(body=b"<html>"), Said(body=b"[]")) as asked:
        answers = take(asked, 5 * EVERY, redact=True)

    assert answers[0].body == body.replace(b"shop-10", b"vm-1").replace(b"shop-1", b"vm-0")
    assert [answer.body for answer in answers[1:]] == [b"<html>", b"[]"]
    text = (tmp_path / "recording.toml").read_text(encoding="utf-8")
    assert "shop" not in text
    assert "127.0.0.1" not in text
    assert "shop-1 was renamed to vm-0" in capsys.readouterr().err


def describe(*events: tuple[list[str], str]) -> bytes:
    """Return a document of events with such resources and descriptions."""
    shown = [
        {"EventId": "A", "EventStatus": "Scheduled", "Resources": names, "Description": text}
        for names, text in events
    ]
    return json.dumps({"DocumentIncarnation": 1, "Events": shown}).encode()


@pytest.mark.parametrize(
    ("names", "description", "redacted"),
    [
        (["vm-1", "vm-0"], "vm-1 fails over to vm-0", "vm-0 fails over to vm-1"),
        (["a"], "a change at a, a-b and a_c", "vm-0 change at vm-0, a-b and a_c"),
        (["web-0"], "Reboot of WEB-0.", "Reboot of vm-0."),
        (["web-0", "WEB-0"], "Reboot of Web-0", "Reboot of vm-0"),
        (["web.1", "web"], "(web.1) web.example.com", "(vm-0) vm-1.example.com"),
        (["", "web"], "Move of web", "Move of vm-1"),
        ([], "Move of nothing", "Move of nothing"),
    ],
)
def test_description_has_the_new_names_too(
    take: Take, names: list[str], description: str, redacted: str
) -> None:
    with endpoint(Said(body=describe((names, description)))) as asked:
        (answer,) = take(asked, EVERY, redact=True)

    assert json.loads(answer.body)["Events"][0]["Description"] == redacted


def test_name_is_left_out_of_the_events_before_its_own(take: Take) -> None:
    body = describe((["shop"], "shop moves away from till"), (["till"], ""))
    with endpoint(Said(body=body)) as asked:
        (answer,) = take(asked, EVERY, redact=True)

    first, _ = json.loads(answer.body)["Events"]
    assert first["Description"] == "vm-0 moves away from vm-1"


def test_text_that_is_no_unicode_is_redacted_like_any_other(take: Take) -> None:
    with endpoint(Said(body=describe((["shop\ud800"], "é of shop\ud800, \udfff")))) as asked:
        (answer,) = take(asked, EVERY, redact=True)

    assert "é of vm-0, \\udfff".encode() in answer.body
    assert b"shop" not in answer.body


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        (Said(404, b'{ "error": "Not found" }'), 'answers 404: { "error": "Not found" }'),
        (Said(body=b"<html>"), "did not return a Scheduled Events document"),
        (Said(body=b""), "It is empty."),
        (Said(0), "cannot be recorded"),
        (Said(body=EMPTY.ljust(5 * 2**20)), "cannot be recorded: its answer is larger than 4 MiB."),
    ],
)
def test_what_is_no_endpoint_is_refused_and_no_file_made(
    take: Take, tmp_path: Path, said: Said, problem: str
) -> None:
    with endpoint(said) as asked, pytest.raises(CommandError) as refusal:
        take(asked, 1)

    assert problem in str(refusal.value)
    assert list(tmp_path.iterdir()) == []
    assert len(asked.asked) == 1


@pytest.mark.parametrize("host", ["127.0.0.1:1", "[::1", ""])
@pytest.mark.parametrize("beginning", ["http://", "//", ""])
def test_url_with_a_password_is_refused_and_not_repeated(
    take: Take, capsys: pytest.CaptureFixture[str], beginning: str, host: str
) -> None:
    asked = Endpoint([Said()], url=f"{beginning}me:secret@{host}/vm/web-0")
    with pytest.raises(CommandError, match="user name or password") as refusal:
        take(asked, 1)

    assert refusal.value.code is ExitCode.USAGE
    assert "secret" not in f"{refusal.value}{refusal.value.hint}{capsys.readouterr()}"


def test_path_may_have_an_at_sign(take: Take) -> None:
    with endpoint(Said()) as asked:
        asked.url += "@home"

        assert len(take(asked, EVERY)) == 1


def test_file_that_exists_is_left_alone(take: Take, tmp_path: Path) -> None:
    (tmp_path / "recording.toml").write_text("mine")

    with endpoint(Said()) as asked, pytest.raises(CommandError, match="already exists") as refusal:
        take(asked, 1)

    assert refusal.value.code is ExitCode.REFUSED
    assert (tmp_path / "recording.toml").read_text() == "mine"


def test_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    path = tmp_path / "nowhere" / "recording.toml"
    with endpoint(Said()) as asked, pytest.raises(CommandError, match="cannot be written: No such"):
        record(
            RecordingOrder(url=asked.url, api_version=VERSION, output=path, every=EVERY),
            began_at="",
        )
