"""What the leader was told, as rows: what it is about and what was said, in words that JSON has."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

from forewarn.domain.gate import Answer, Question
from forewarn.domain.host_work import HostTask
from forewarn.domain.impact import Impact
from forewarn.domain.knowledge import Knowledge, Undertaking
from forewarn.storage.columns import json_reader, write_json

_READERS: Final[Mapping[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]]] = {
    "impacts": (tuple, json_reader(Impact)),
    "tasks": (json_reader(HostTask), json_reader(Impact)),
    "answers": (json_reader(Question), json_reader(Answer)),
}
"""The fields of `Knowledge`, with what reads the keys and the values of each."""


def write_knowledge(known: Knowledge) -> Iterator[tuple[str, str, object]]:
    """Yield kind, about and said of each row."""
    for kind in _READERS:
        for about, said in getattr(known, kind).items():
            yield kind, _write_key(about), _write_said(said)


def knowledge_key(about: Undertaking) -> tuple[str, str]:
    """Return kind and about of the row of something that begins."""
    return "tasks" if isinstance(about, HostTask) else "impacts", _write_key(about)


def _write_key(about: object) -> str:
    return json.dumps(write_json(about), ensure_ascii=False)


@lru_cache(maxsize=1024)
def _write_said(said: Impact | Answer) -> object:
    # Of a hundred machines that begin together the same is said.
    return write_json(said)


def read_knowledge(rows: Iterable[tuple[str, str, Any]]) -> Knowledge:
    """Return what `write_knowledge` has written."""
    found: dict[str, dict[Any, Any]] = {kind: {} for kind in _READERS}
    for kind, about, said in rows:
        read_key, read_value = _READERS[kind]
        found[kind][read_key(json.loads(about))] = read_value(said)
    return Knowledge(**found)
