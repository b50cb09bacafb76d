"""Recordings: what is written is read again to the byte, and mistakes have their lines."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forewarn.files.recording import (
    RecordedAnswer,
    Recording,
    read_recording,
    write_answer,
    write_beginning,
)
from forewarn.files.tables import TablesError
from forewarn.files.toml import decode

ANSWERS = (
    RecordedAnswer(
        at=0,
        headers={"Content-Type": "application/json", "ETag": '"1"'},
        body=b'{"DocumentIncarnation":1,"Events":[]}',
    ),
    RecordedAnswer(at=1.25, status=429, headers={"Retry-After": "5"}, body=b"it's \x7f\r\n\x00"),
    RecordedAnswer(at=1.25, no_answer="it refuses connections"),
    RecordedAnswer(at=60.5, status=500, body=b"\xff\xfe not UTF-8"),
    RecordedAnswer(at=61, status=204),
    RecordedAnswer(at=61, status=304),
)
BEGINNING = "recording = 1\n\n[[answer]]\nat = 5\nstatus = 200\n\n[[answer]]\nat = 6\n"
"""What an erroneous line follows: it is the ninth, and of the second answer."""


def write(path: Path, recording: Recording) -> None:
    answers = "".join(map(write_answer, recording.answers))
    path.write_text(write_beginning(recording) + answers, encoding="utf-8", newline="")


def test_recording_is_read_as_it_was_written(tmp_path: Path) -> None:
    recording = Recording(
        source="http://169.254.169.254",
        api_version="2020-07-01",
        began_at="2026-11-15T11:11:05Z",
        answers=ANSWERS,
    )

    write(tmp_path / "a.toml", recording)

    assert read_recording(tmp_path / "a.toml") == recording


def test_document_can_be_read_without_backslashes() -> None:
    assert """\nbody = '{"DocumentIncarnation":1,"Events":[]}'\n""" in write_answer(ANSWERS[0])


def test_what_may_not_be_known_is_left_out() -> None:
    text = write_beginning(Recording(api_version="2020-07-01", began_at=""))

    assert text == 'recording = 1\napi_version = "2020-07-01"\n'


@given(body=st.binary() | st.text().map(str.encode))
def test_any_body_is_written_as_it_is(body: bytes) -> None:
    (entry,) = decode(write_answer(RecordedAnswer(at=0, body=body)))["answer"]

    assert ("body" in entry) is not ("body_base64" in entry)
    assert "body_base64" in entry or entry["body"].encode() == body


def test_answers_that_differ_only_in_their_time_are_alike() -> None:
    answer = ANSWERS[0]

    assert answer.is_like(RecordedAnswer(at=9, headers=answer.headers, body=answer.body))
    assert not answer.is_like(None)
    assert not answer.is_like(ANSWERS[1])
    assert (answer.find_header("etag"), answer.find_header("retry-after")) == ('"1"', None)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("recording = 1\n", "answer: it is required"),
        ("recording = 1\nanswer = []\n", ":2: answer: it is empty"),
        (
            "recording = 2\n[[answer]]\nat = 0\nstatus = 200\n",
            ":1: recording: the format version is ",
        ),
        (f"{BEGINNING}status = 99\n", ":9: status of answer 2: it is too low"),
        (f"{BEGINNING}\n", ":7: answer 2: it needs a status or no_answer"),
        (f"{BEGINNING}statuses = 200\n", ":9: statuses of answer 2: unknown key"),
        (
            f"{BEGINNING}status = 200\nbody_base64 = '?'\n",
            ":10: body_base64 of answer 2: it is not",
        ),
        (
            f"{BEGINNING}status = 200\nbody = ''\nbody_base64 = ''\n",
            ":11: body_base64 of answer 2: it cannot be used together with body",
        ),
        (
            f'{BEGINNING}status = 200\nheaders = {{ content-length = "5" }}\n',
            ":10: headers of answer 2: content-length cannot be recorded",
        ),
        (f"{BEGINNING}status = 204\nbody = 'x'\n", ":10: body of answer 2: 204 has no body"),
        (
            f"{BEGINNING}status = 304\nbody_base64 = 'eA=='\n",
            ":10: body_base64 of answer 2: 304 has no body",
        ),
        (
            f'{BEGINNING}no_answer = "gone"\nbody = ""\n',
            ":10: body of answer 2: it cannot be used together with no_answer",
        ),
        (BEGINNING.replace("at = 6", "at = 4\nstatus = 200"), ":8: at of answer 2: it is earlier"),
        (BEGINNING.replace("at = 6", "at = nan"), ":8: at of answer 2"),
        ("recording = ", ":1: Not valid TOML"),
    ],
)
def test_mistake_is_told_with_its_line(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "wrong.toml"
    path.write_text(text, encoding="utf-8")

    with pytest.raises(TablesError) as refusal:
        read_recording(path)

    assert said in str(refusal.value)


def test_all_mistakes_are_told_in_their_order(tmp_path: Path) -> None:
    path = tmp_path / "wrong.toml"
    path.write_text(f"{BEGINNING}[[answer]]\nat = 1\n[[answer]]\nat = 5.5\nstatus = 200\n")

    with pytest.raises(TablesError) as refusal:
        read_recording(path)

    assert [line for line, _ in refusal.value.mistakes] == [7, 10, 12]


def test_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "noise.toml").write_bytes(b"\xff")

    with pytest.raises(TablesError, match=r"noise.toml cannot be read: it is not UTF-8 text"):
        read_recording(tmp_path / "noise.toml")


def test_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(TablesError, match=r"none.toml cannot be read: No such file or directory\."):
        read_recording(tmp_path / "none.toml")
