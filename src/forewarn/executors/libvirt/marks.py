"""What was begun with a domain, in the domain's own metadata, where everybody can see it.

A mark is set before its deed is done, so whoever finds a mark knows that the deed was done, or was
just about to be. Two servers that work on the same domain follow the same mark.
"""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final
from xml.etree import ElementTree as ET

from forewarn.protocol.vocabulary import EventId, EventType

NAMESPACE: Final = "urn:forewarn:impact"
PREFIX: Final = "forewarn"


class MarkPhase(StrEnum):
    """The deed that a mark stands for, or how the impact ended."""

    SUSPEND = "suspend"
    REBOOT = "reboot"
    RESET = "reset"
    SHUTDOWN = "shutdown"
    DESTROY = "destroy"
    MIGRATE = "migrate"
    MOVE = "move"
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class DomainMark:
    """How far the impact of an event is, since *at*.

    *until* is when the phase ends, if that is known. *to* is the host that the domain goes to, and
    *has_autostart* says that it started with its old one. *was_resumed* says that the domain had
    been suspended and resumed before, so that this is no sign of the deed.
    """

    event_id: EventId
    event_type: EventType
    epoch: int
    phase: MarkPhase
    at: datetime
    until: datetime | None = None
    to: str | None = None
    has_autostart: bool = False
    was_resumed: bool = False
    reason: str = ""

    def encode(self) -> str:
        """Return the mark as an element."""
        words = {
            "event_id": self.event_id,
            "event_type": self.event_type,
            "epoch": str(self.epoch),
            "phase": self.phase,
            "at": self.at.isoformat(),
            "until": "" if self.until is None else self.until.isoformat(),
            "to": self.to or "",
            "autostart": "yes" if self.has_autostart else "",
            "resumed": "before" if self.was_resumed else "",
            "reason": "".join(filter(str.isprintable, self.reason)),
        }
        given = {name: value for name, value in words.items() if value}
        return ET.tostring(ET.Element("impact", given), encoding="unicode")


def read_mark(text: str) -> DomainMark | None:
    """Return the mark that *text* is; None if it is none of ours."""
    try:
        given = ET.fromstring(text).attrib  # noqa: S314 - libvirt has parsed it before
        return DomainMark(
            event_id=EventId(given["event_id"]),
            event_type=EventType(given["event_type"]),
            epoch=int(given["epoch"]),
            phase=MarkPhase(given["phase"]),
            at=_moment(given["at"]),
            until=_moment(given["until"]) if "until" in given else None,
            to=given.get("to"),
            has_autostart="autostart" in given,
            was_resumed="resumed" in given,
            reason=given.get("reason", ""),
        )
    except (ET.ParseError, KeyError, ValueError):
        return None


def _moment(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError("the mark has a time without a zone")
    return moment
