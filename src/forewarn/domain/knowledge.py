"""What the leader was last told, by executors, by gates and by whoever works on hosts.

It is written down for those who do not lead, and for whoever leads next. When something is asked
about again is not news: it would have to be written each time that nothing has changed.
"""

from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final, TypeAlias, TypeVar

from forewarn.domain.gate import Answer, GateStatus, Question
from forewarn.domain.host_work import HostTask
from forewarn.domain.impact import Impact
from forewarn.domain.names import VmName
from forewarn.domain.snapshot import Snapshot
from forewarn.protocol.vocabulary import EventId

Undertaking: TypeAlias = tuple[EventId, VmName] | HostTask
"""What is begun at most once: the impact of an event on a virtual machine, or a task on a host."""

K = TypeVar("K")
V = TypeVar("V", bound=Impact | Answer)

_AT_ANY_MOMENT: Final = timedelta(seconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Knowledge:
    """What was said last, of each that is asked about."""

    impacts: Mapping[tuple[EventId, VmName], Impact] = field(default_factory=dict)
    tasks: Mapping[HostTask, Impact] = field(default_factory=dict)
    answers: Mapping[Question, Answer] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.impacts or self.tasks or self.answers)

    def __or__(self, later: "Knowledge") -> "Knowledge":
        return Knowledge(
            impacts={**self.impacts, **later.impacts},
            tasks={**self.tasks, **later.tasks},
            answers={**self.answers, **later.answers},
        )

    def __sub__(self, gone: "Knowledge") -> "Knowledge":
        return Knowledge(
            impacts={key: self.impacts[key] for key in self.impacts.keys() - gone.impacts.keys()},
            tasks={task: self.tasks[task] for task in self.tasks.keys() - gone.tasks.keys()},
            answers={key: self.answers[key] for key in self.answers.keys() - gone.answers.keys()},
        )


NOTHING: Final = Knowledge()
"""What is known before anybody was asked."""


def find_unwritten(known: Knowledge, written: Knowledge) -> Knowledge:
    """Return what of *known* is not *written* down, or otherwise."""
    return Knowledge(
        impacts=dict(_news(known.impacts, written.impacts)),
        tasks=dict(_news(known.tasks, written.tasks)),
        answers=dict(_news(known.answers, written.answers)),
    )


def find_obsolete(
    written: Knowledge, snapshot: Snapshot, questions: AbstractSet[Question]
) -> Knowledge:
    """Return what is *written* of what is over, or is not asked any more."""
    lasting = {key for key, event in snapshot.events.items() if event.is_in_flight}
    under_way = {key for key, each in snapshot.operations.items() if not each.is_over}
    return Knowledge(
        impacts={key: said for key, said in written.impacts.items() if key[0] not in lasting},
        tasks={key: x for key, x in written.tasks.items() if key.operation_id not in under_way},
        answers={key: said for key, said in written.answers.items() if key not in questions},
    )


def read_at(written: Knowledge, now: datetime) -> Knowledge:
    """Return what is *written*, of which a part was asked about again since it was written."""
    soon = (now + _AT_ANY_MOMENT).replace(microsecond=0)
    return Knowledge(
        impacts=dict(_asked_again(written.impacts, now, soon)),
        tasks=dict(_asked_again(written.tasks, now, soon)),
        answers=dict(_asked_again(written.answers, now, soon)),
    )


def _news(known: Mapping[K, V], written: Mapping[K, V]) -> Iterator[tuple[K, V]]:
    for key, said in known.items():
        before = written.get(key)
        if said is not before and (before is None or _is_other(said, before)):
            yield key, said


def _is_other(said: V, before: V) -> bool:
    if isinstance(said, Answer) and said.status is GateStatus.ASKING:
        return False  # until it is answered, what was said before is the last word
    if (said.ask_again_at is None) is not (before.ask_again_at is None):
        return True
    return said != before and replace(said, ask_again_at=before.ask_again_at) != before


def _asked_again(written: Mapping[K, V], now: datetime, soon: datetime) -> Iterator[tuple[K, V]]:
    for key, said in written.items():
        yield key, replace(said, ask_again_at=soon) if said.has_news(now) else said
