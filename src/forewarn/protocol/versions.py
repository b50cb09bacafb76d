"""The api-versions, one row each: whatever differs between them is in this table."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from forewarn.protocol.vocabulary import EventType


class DateForm(Enum):
    """How NotBefore is written."""

    ISO_8601 = "2016-09-19T18:29:47Z"
    RFC_1123 = "Mon, 19 Sep 2016 18:29:47 GMT"


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiVersion:
    """What one api-version has, and how it differs from its neighbours."""

    name: str
    fields: tuple[str, ...]
    event_types: frozenset[EventType | str]
    not_before: DateForm = DateForm.RFC_1123
    metadata_header_on_post: bool = True


_INITIAL_FIELDS = (
    "EventId",
    "EventStatus",
    "EventType",
    "ResourceType",
    "Resources",
    "NotBefore",
)
_WITH_DESCRIPTION = (*_INITIAL_FIELDS, "Description")
_WITH_SOURCE = (*_WITH_DESCRIPTION, "EventSource")
_WITH_DURATION = (*_WITH_SOURCE, "DurationInSeconds")

_INITIAL_TYPES = frozenset({EventType.FREEZE, EventType.REBOOT, EventType.REDEPLOY})
_WITH_PREEMPT = _INITIAL_TYPES | {EventType.PREEMPT}
_WITH_TERMINATE = _WITH_PREEMPT | {EventType.TERMINATE}

API_VERSIONS: Final = (
    ApiVersion(
        name="2017-03-01",
        fields=_INITIAL_FIELDS,
        event_types=_INITIAL_TYPES,
        not_before=DateForm.ISO_8601,
        metadata_header_on_post=False,
    ),
    ApiVersion(name="2017-08-01", fields=_INITIAL_FIELDS, event_types=_INITIAL_TYPES),
    ApiVersion(name="2017-11-01", fields=_INITIAL_FIELDS, event_types=_WITH_PREEMPT),
    ApiVersion(name="2019-01-01", fields=_INITIAL_FIELDS, event_types=_WITH_TERMINATE),
    ApiVersion(name="2019-04-01", fields=_WITH_DESCRIPTION, event_types=_WITH_TERMINATE),
    ApiVersion(name="2019-08-01", fields=_WITH_SOURCE, event_types=_WITH_TERMINATE),
    ApiVersion(name="2020-07-01", fields=_WITH_DURATION, event_types=_WITH_TERMINATE),
)
"""Oldest first."""

VERSIONS_BY_NAME: Final[Mapping[str, ApiVersion]] = {each.name: each for each in API_VERSIONS}

NEWEST: Final = API_VERSIONS[-1]

_WELL_FORMED = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


def is_well_formed(name: str) -> bool:
    """Tell whether *name* looks like an api-version, known or not."""
    return _WELL_FORMED.fullmatch(name) is not None
