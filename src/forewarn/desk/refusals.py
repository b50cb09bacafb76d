"""Every refusal of a change leaves a line in the audit; what is done leaves its own in operations.

Refusals cost a caller nothing, so only so many lines are written in a minute: for each valid token,
and for each address of callers without one. The rest is counted, and the number gets a line when
the minute is over. Behind a proxy all callers share an address, so tokens are counted apart from
addresses: a caller without a valid token hides no refusal of another's token.

Wrong tokens and codes are counted in the same way, by address. With too many, the next wrong one is
answered late. A right one never is, so that no caller locks out others who have the same address.
Requests with a token that was too often beyond its limits, such as of streams or sign-in links, are
late as well.
"""

import asyncio
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future
from datetime import datetime
from threading import Lock
from typing import Final

import structlog

from forewarn.connections.crowd import origin_of
from forewarn.desk.services import Services
from forewarn.operations.access import redact
from forewarn.ports.entries import REFUSED, Actor, AuditEntry
from forewarn.ports.store import StoreError, Transaction
from forewarn.protocol.controls import printable
from forewarn.protocol.errors import ForewarnError

NOBODY: Final = "-"
"""Who it was, or what it was about, when that is not known."""
LINES_PER_MINUTE: Final = 30
"""How many refusals of one token or address are written in a minute; the rest is counted."""
LINES_OF_ALL: Final = 300
"""How many refusals of all tokens, or of all addresses, are written in a minute."""
CALLERS_PER_MINUTE: Final = 100
"""How many tokens, or addresses, are told apart in a minute; the rest counts as one."""
EXCESS_SECONDS: Final = 2.0
"""How late a caller is answered who was beyond limits more often than there are lines for."""

_LONGEST_SUBJECT: Final = 128
_LONGEST_DETAIL: Final = 512

_log = structlog.get_logger(__name__)


def kind_of(error: ForewarnError) -> str:
    """Return what kind of problem *error* is, by the name of its class: not-found."""
    name = type(error).__name__.removesuffix("Error")
    return "".join(f"-{letter.lower()}" if letter.isupper() else letter for letter in name)[1:]


class FloodGate:
    """Says which refusals are within the limits, and how many of a caller were not."""

    def __init__(self) -> None:
        self._minute: datetime | None = None
        self._counts: Counter[str] = Counter()
        self._written: Counter[str] = Counter()

    def admit(self, caller: str, at: datetime) -> bool:
        """Tell whether this refusal is. What `settle` returns has to be written before."""
        self._minute = at.replace(second=0, microsecond=0)
        is_known = caller in self._counts or len(self._counts) < CALLERS_PER_MINUTE
        key = caller if is_known else NOBODY
        self._counts[key] += 1
        is_written = self._written[key] < LINES_PER_MINUTE and self._written.total() < LINES_OF_ALL
        self._written[key] += is_written
        return is_written

    def is_beyond(self, caller: str) -> bool:
        """Tell whether *caller* had more refusals than are within the limits."""
        return self._counts[caller] > LINES_PER_MINUTE

    def settle(self, at: datetime | None = None) -> dict[str, int]:
        """Return how many were not written, by caller, once their minute is over; or now."""
        if at is not None and self._minute == at.replace(second=0, microsecond=0):
            return {}
        unwritten = self._counts - self._written
        self._counts, self._written = Counter(), Counter()
        return dict(unwritten)


class Refusals:
    """Counts refusals, and writes those of changes into the audit; on any thread."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._gates = {actor: FloodGate() for actor in (Actor.OPERATOR, Actor.UNKNOWN)}
        self._excesses = FloodGate()
        self._counting = Lock()

    def is_guessing(self, client: tuple[str, int] | None) -> bool:
        """Count a wrong token or code of *client*; tell whether its address had too many."""
        return self.is_excessive(origin_of(client and client[0]).name, more=True)

    def is_excessive(self, caller: str, *, more: bool = False) -> bool:
        """Tell whether an address, or a token, was beyond limits too often in this minute.

        With *more*, it is once more.
        """
        at = self._services.context(NOBODY).at
        with self._counting:
            self._excesses.settle(at)
            if more:
                self._excesses.admit(caller, at)
            return self._excesses.is_beyond(caller)

    def count(self, kind: str) -> None:
        """Count a problem of *kind*, whoever has it."""
        with self._counting:
            self._services.refused[kind] += 1

    def entry(
        self,
        where: str,
        detail: str,
        *,
        who: str = NOBODY,
        action: str = NOBODY,
        subject: str = NOBODY,
        is_valid: bool = False,
    ) -> AuditEntry:
        """Return the line about a refused change; *is_valid* says whether the token of *who* is."""
        context = self._services.context(who)
        return AuditEntry(
            at=context.at,
            maintenance_time=context.now,
            who=who,
            actor=Actor.OPERATOR if is_valid else Actor.UNKNOWN,
            where=where,
            action=action,
            subject=_printable(subject, _LONGEST_SUBJECT),
            outcome=REFUSED,
            detail=_printable(detail, _LONGEST_DETAIL),
        )

    async def note(self, refusal: AuditEntry) -> None:
        """Write *refusal*, or count it if there are too many of its kind."""
        await self._write(self._lines(refusal))

    def note_and_wait(self, refusal: AuditEntry) -> None:
        """Do as `note` does, on a thread that may wait."""
        lines = self._lines(refusal)
        if not lines:
            return
        try:
            self._submit(lines).result()
        except StoreError as error:
            _warn(lines, error)

    async def settle(self, *, everything: bool = False) -> None:
        """Write how many were only counted, of the minutes that are over or of every one."""
        at = None if everything else self._services.context(NOBODY).at
        with self._counting:
            lines = self._settle(at)
        await self._write(lines)

    def _lines(self, refusal: AuditEntry) -> list[AuditEntry]:
        caller = refusal.who if refusal.actor is Actor.OPERATOR else refusal.where
        with self._counting:
            lines = self._settle(refusal.at)
            if self._gates[refusal.actor].admit(caller, refusal.at):
                lines.append(refusal)
        return lines

    def _settle(self, at: datetime | None) -> list[AuditEntry]:
        lines = []
        for actor, gate in self._gates.items():
            for caller, number in gate.settle(at).items():
                detail = f"{number} more refusals within a minute, not listed individually."
                if actor is Actor.OPERATOR:
                    lines.append(self.entry("", detail, who=caller, is_valid=True))
                else:
                    lines.append(self.entry(caller, detail))
        return lines

    async def _write(self, lines: Sequence[AuditEntry]) -> None:
        if not lines:
            return
        try:
            await asyncio.wrap_future(self._submit(lines))
        except StoreError as error:
            _warn(lines, error)

    def _submit(self, lines: Sequence[AuditEntry]) -> Future[None]:
        def work(tx: Transaction) -> None:
            for line in lines:
                tx.append_audit(line)

        return self._services.store.submit(work)


def _warn(lines: Sequence[AuditEntry], error: StoreError) -> None:
    # They are refused all the same.
    _log.warning("refusal_not_audited", lines=len(lines), reason=str(error))


def _printable(text: str, longest: int) -> str:
    # Strangers choose it, and terminals show it.
    plain = printable(redact(text))
    return plain if len(plain) <= longest else f"{plain[: longest - 1]}…"
