"""/audit: who asked for what, and what was refused."""

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Final
from urllib.parse import quote

from forewarn.console.rendering import short
from forewarn.console.visit import ConsoleRoute, Form, FormError, Page, PageRoute, Visit, address
from forewarn.domain.errors import InvalidError
from forewarn.domain.roles import Role
from forewarn.ports.entries import DONE, REFUSED, AuditEntry
from forewarn.wording.moments import parse_past

PAGE_LENGTH: Final = 100
_LARGEST_SEQUENCE: Final = 10**11
_ID: Final = re.compile(r"[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}")

SUBJECTS: Final[Mapping[str, str]] = {
    "event": "/events/",
    "maintenance": "/maintenances/",
    "vm": "/virtual-machines/",
    "fault": "/virtual-machines/",
    "host": "/fleet?by=host&host=",
}
"""Where the page about a subject is, by the first word of what was done to it."""
_NAMED_BY_ID: Final = frozenset({"event", "maintenance"})


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditLine:
    """One entry, what its subject is called, and where the page about it is, if there is one."""

    entry: AuditEntry
    name: str
    href: str
    is_refused: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditFilters:
    """Which entries are shown; *since* as it was typed."""

    who: str = ""
    action: str = ""
    outcome: str = ""
    since: str = ""
    older_than: int = 0

    @property
    def is_set(self) -> bool:
        """Whether some entries are left out."""
        return bool(self.who or self.action or self.outcome or self.since)

    def url(self, older_than: int = 0) -> str:
        """Return the address of the entries with the same filters before *older_than*."""
        return address("/audit", asdict(replace(self, older_than=older_than)), _USUAL)


_USUAL: Final = asdict(AuditFilters())


def show_audit(visit: Visit) -> Page:
    """Show what was done and refused, the newest first."""
    problem, found, filters = "", tuple[AuditEntry, ...](), _said(visit.query)
    try:
        filters, since = _read_filters(visit)
        found = visit.read(
            lambda reading: reading.audit(
                who=filters.who or None,
                action=filters.action or None,
                outcome=filters.outcome or None,
                since=since,
                older_than=filters.older_than or None,
                limit=PAGE_LENGTH + 1,
            )
        )
    except InvalidError as error:  # the form is shown again, to be corrected
        problem = str(error)
    shown = found[::-1][:PAGE_LENGTH]
    return Page(
        title="Audit",
        template="audit.html",
        values={
            "filters": filters,
            "problem": problem,
            "lines": [_line(entry) for entry in shown],
            "actions": sorted({entry.action for entry in shown}),
            "people": sorted({entry.who for entry in shown}),
            "older": filters.url(shown[-1].sequence) if len(found) > PAGE_LENGTH else "",
        },
    )


def _said(query: Form) -> AuditFilters:
    return AuditFilters(
        who=query.text("who"),
        action=query.text("action"),
        outcome=query.text("outcome"),
        since=query.text("since"),
    )


def _read_filters(visit: Visit) -> tuple[AuditFilters, datetime | None]:
    said = _said(visit.query)
    if said.outcome not in {"", DONE, REFUSED}:
        raise FormError(f"Outcome: choose {DONE} or {REFUSED}.")
    since = parse_past(said.since, visit.caller.context().at) if said.since else None
    older_than = visit.query.number("older_than", 0, most=_LARGEST_SEQUENCE)
    return replace(said, older_than=older_than), since


def _line(entry: AuditEntry) -> AuditLine:
    noun, subject = entry.action.partition(" ")[0], entry.subject
    is_id = _ID.fullmatch(subject) is not None
    is_known = is_id if noun in _NAMED_BY_ID else subject not in {"", "-"}
    return AuditLine(
        entry=entry,
        name=short(subject) if is_id else subject,
        href=SUBJECTS[noun] + quote(subject, safe="") if noun in SUBJECTS and is_known else "",
        is_refused=entry.outcome == REFUSED,
    )


ROUTES: Final[tuple[ConsoleRoute, ...]] = (
    PageRoute(path="/audit", show=show_audit, role=Role.ADMIN),
)
