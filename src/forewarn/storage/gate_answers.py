"""What gates said to the leader, as rows: the question and the answer, in words that JSON has."""

import json
from collections.abc import Iterable
from typing import Any, Final

from forewarn.domain.gate import Answer, Question
from forewarn.storage.columns import json_reader, write_json

_READ_QUESTION: Final = json_reader(Question)
_READ_ANSWER: Final = json_reader(Answer)


def write_question(question: Question) -> str:
    """Return the key of the row of *question*."""
    return json.dumps(write_json(question), ensure_ascii=False)


def read_answers(rows: Iterable[tuple[str, Any]]) -> dict[Question, Answer]:
    """Return the answers of *rows*."""
    return {_READ_QUESTION(json.loads(key)): _READ_ANSWER(answer) for key, answer in rows}
