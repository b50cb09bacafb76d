"""What virtual machines did, in the few words with which a failed assertion begins."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from forewarn.domain.names import VmName
from forewarn.ports.journal import JournalEntry
from forewarn.protocol.vocabulary import EventId

_MOST: Final = 3
"""How many virtual machines, or events, are told of; of the others only how many there are."""
_JUST_NOW: Final = timedelta(seconds=1)
"""Requests that have waited for less are normal in a running program."""
_FINE: Final = frozenset({200, 304})
_PREFACES: Final = ("Bad request", "Not found", "Forbidden")
"""What a status says already."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Everybody's requests up to *now*, which is real time, and what the events are called."""

    requests: Sequence[JournalEntry]
    now: datetime
    titles: Mapping[EventId, str]

    def describe(self, vms: Sequence[VmName], about: EventId | None = None) -> str:
        """Return what *vms* did, with an eye to the event that it is *about*."""
        told = [self._describe(vm, about) for vm in vms[:_MOST]]
        if len(vms) > _MOST:
            told.append(f"{len(vms) - _MOST} more virtual machines")
        return "; ".join(told)

    def _describe(self, vm: VmName, about: EventId | None) -> str:
        own = [entry for entry in self.requests if entry.vm == vm]
        polls = self._settled([entry for entry in own if entry.is_poll])
        posts = self._settled([entry for entry in own if entry.is_start_request])
        if not own:
            return f"{vm} sent no request{self._others()}"
        if not polls and not posts:
            last = f"{own[-1].request}: {_outcome(own[-1])}"
            return f"{vm} never asked for its document; its last request was {last}"
        return f"{vm} sent {self._deeds(polls, posts, about)}; {self._last(polls)}"

    def _settled(self, entries: Sequence[JournalEntry]) -> Sequence[JournalEntry]:
        """Leave out requests that have just come, unless there are no others.

        What a failure says would otherwise depend on its moment: "18 of 19 POSTs failed", only
        because the last one had no answer yet.
        """
        settled = [
            entry
            for entry in entries
            if entry.seconds is not None or self.now - entry.at >= _JUST_NOW
        ]
        return settled or entries

    def _deeds(
        self, polls: Sequence[JournalEntry], posts: Sequence[JournalEntry], about: EventId | None
    ) -> str:
        gets = _count(polls, "GET")
        is_shown = about is not None and any(poll.shows(about) for poll in polls)
        if posts:
            aims = self._aims(posts, about)
            unseen = ", and was not shown the event" if aims and polls and not is_shown else ""
            approvals = f"{_count(posts, 'POST')}{aims}{unseen}"
            has_failed = any(_has_failed(poll) for poll in polls)
            return f"{gets} and {approvals}" if has_failed else approvals
        if about is None:
            return f"{gets} and no POST"
        return f"{gets}, was {'' if is_shown else 'not '}shown the event, and sent no POST"

    def _aims(self, posts: Sequence[JournalEntry], about: EventId | None) -> str:
        """Return which events were approved instead of the one that it is *about*."""
        approved = dict.fromkeys(event_id for post in posts for event_id in post.approved)
        if about is None or about in approved or not any(post.status == 200 for post in posts):
            return ""
        titles = [self._title(event_id, about) for event_id in approved]
        more = f" and {len(titles) - _MOST} more" if len(titles) > _MOST else ""
        return f", for {', '.join(titles[:_MOST]) or 'no event'}{more}"

    def _title(self, event_id: EventId, about: EventId) -> str:
        title = self.titles.get(event_id, event_id)
        return f"another {title}" if title == self.titles.get(about) else title

    def _last(self, polls: Sequence[JournalEntry]) -> str:
        if not polls:
            return "it never polled"
        last = polls[-1]
        if last.seconds is None:
            return f"its last GET has waited for {_seconds(self.now - last.at)}"
        answered_at = last.at + timedelta(seconds=last.seconds)
        return f"last GET {_seconds(self.now - answered_at)} ago"

    def _others(self) -> str:
        strangers = [entry for entry in self.requests if entry.vm is None]
        if strangers:
            last = f"{strangers[-1].request}: {_outcome(strangers[-1])}"
            return f", but an unknown caller did (last: {last})"
        names = [*dict.fromkeys(str(entry.vm) for entry in self.requests)]
        more = f" and {len(names) - _MOST} more" if len(names) > _MOST else ""
        return f", but {', '.join(names[:_MOST])}{more} did" if names else ""


def _count(entries: Sequence[JournalEntry], method: str) -> str:
    number = len(entries)
    noun = f"{number} {method}" if number == 1 else f"{number} {method}s"
    failed = [entry for entry in entries if _has_failed(entry)]
    if method == "GET" and not failed:
        return noun
    outcomes = dict.fromkeys(_outcome(entry) for entry in entries)
    if len(outcomes) > 1 and failed:
        last = f"{_outcome(failed[-1])} {_reason(failed[-1])}".rstrip()
        return f"{noun}, {len(failed)} of them failed (last: {last})"
    outcome = " and ".join(outcomes)
    reason = _reason(entries[-1])
    if number == 1 or len(outcomes) > 1:
        return f"{noun}, {outcome}{f' ({reason})' if reason else ''}"
    return f"{noun}, all {outcome}{f' (last: {reason})' if reason else ''}"


def _outcome(entry: JournalEntry) -> str:
    return entry.outcome if entry.status is None else str(entry.status)


def _reason(entry: JournalEntry) -> str:
    """Return the sentence of a refusal that says more than its status."""
    first, *others = entry.error.split(". ")
    return others[0] if others and first.startswith(_PREFACES) else entry.error


def _has_failed(entry: JournalEntry) -> bool:
    """Tell whether it ended otherwise than it should; a poll that waits has not ended."""
    return entry.seconds is not None and entry.status not in _FINE


def _seconds(length: timedelta) -> str:
    return f"{max(0.0, length.total_seconds()):.1f} s"
