"""What somebody could do about something, as a link to where there is a button for it."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Final
from urllib.parse import quote

from forewarn.domain.why import OF_EVENTS, OF_MAINTENANCES, Remedies, Remedy, Verb

_LABELS: Final[Mapping[Verb, str]] = {
    Verb.RESUME_SERVER: "Resume the server",
    Verb.RESUME: "Resume",
    Verb.RETRY: "Retry",
    Verb.SKIP: "Skip",
    Verb.ABORT: "Abort",
    Verb.START: "Start",
    Verb.COMPLETE: "Complete",
    Verb.MOVE_AWAY: "Show the hosts",
    Verb.CORRECT_EXECUTORS: "Show server health",
}
"""What the link to each verb says; a verb for others has none."""
_PAGES: Final[Mapping[Verb, str]] = {
    Verb.RESUME_SERVER: "/health",
    Verb.MOVE_AWAY: "/fleet?by=host",
    Verb.CORRECT_EXECUTORS: "/health",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """A link to where something can be done."""

    label: str
    href: str


def find_ways(remedies: Remedies) -> tuple[Way, ...]:
    """Return a link for each of *remedies*, each once."""
    return tuple(dict.fromkeys(_ways(chain.from_iterable(remedies))))


def _ways(remedies: Iterable[Remedy]) -> Iterator[Way]:
    for remedy in remedies:
        if remedy.verb in _LABELS:
            yield Way(label=_LABELS[remedy.verb], href=_page(remedy))


def _page(remedy: Remedy) -> str:
    if remedy.verb in OF_EVENTS and remedy.ids:
        return f"/events/{quote(remedy.ids[0])}"
    if remedy.verb in OF_MAINTENANCES and remedy.ids:
        return f"/maintenances/{quote(remedy.ids[0])}"
    return _PAGES.get(remedy.verb, "/")
