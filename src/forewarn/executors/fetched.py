"""Hosts carry orders out by themselves: they fetch each, and report how far it is.

The database has the task, so any replica can hand it out and take the report. The host remembers
what it has begun.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from forewarn.domain.host_work import HostTask
from forewarn.domain.impact import Impact, ImpactStatus
from forewarn.domain.task import FETCHED
from forewarn.operations.tasks import fetching_node
from forewarn.ports.runner import Assignment
from forewarn.wording.durations import format_duration

FETCH_WITHIN: Final = timedelta(minutes=10)
"""How long a host may take to fetch an order unless the operator says otherwise."""

_ADVICE: Final = "check that forewarn host work is running there"


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedByHost:
    """The host fetches it, at the latest *within* this time."""

    within: timedelta = FETCH_WITHIN

    def assign(self, task: HostTask, order: Mapping[str, object]) -> Assignment:
        """Return that the host of *task* is to fetch the *order*."""
        limit = format_duration(self.within)
        return Assignment(
            runner=FETCHED,
            said=Impact(
                status=ImpactStatus.NOT_BEGUN,
                reason=f"the host has not fetched it yet; {_ADVICE}",
            ),
            node=fetching_node(task.host),
            details={
                "order": order,
                "within_seconds": self.within.total_seconds(),
                "not_fetched": f"the host did not fetch it within {limit}; {_ADVICE}",
            },
        )
