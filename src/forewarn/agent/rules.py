"""Which events the agent cares about: an ordered table of rules, of which the first that fits says.

The rules of the configuration come before those of this file.
"""

from dataclasses import dataclass
from datetime import timedelta
from fnmatch import fnmatchcase
from typing import Final

from forewarn.agent.vocabulary import RuleVerdict
from forewarn.protocol.document import Event
from forewarn.protocol.identity import Identity, spell
from forewarn.protocol.vocabulary import EventType

SHORT_FREEZE: Final = timedelta(seconds=10)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What is to be done about the events that fit; a condition that is empty fits all of them.

    A duration that nobody knows is neither shorter than anything nor as long as anything. `names`
    are patterns, and one of them has to fit one of the names of this machine.
    """

    then: RuleVerdict
    event_types: tuple[str, ...] = ()
    event_sources: tuple[str, ...] = ()
    shorter_than: timedelta | None = None
    at_least: timedelta | None = None
    names: tuple[str, ...] = ()

    def fits(self, event: Event, me: Identity) -> bool:
        """Tell whether *event* is one that this rule is about, on the machine *me*."""
        return (
            (not self.event_types or event.event_type in self.event_types)
            and (not self.event_sources or event.event_source in self.event_sources)
            and self._fits_duration(event.duration_in_seconds)
            and (not self.names or any(map(self._fits_name, me.names)))
        )

    def _fits_duration(self, seconds: int | None) -> bool:
        if self.shorter_than is None and self.at_least is None:
            return True
        if seconds is None:
            return False
        # As numbers: a server may send more seconds than a timedelta holds.
        return (self.shorter_than is None or seconds < self.shorter_than.total_seconds()) and (
            self.at_least is None or seconds >= self.at_least.total_seconds()
        )

    def _fits_name(self, name: str) -> bool:
        return any(fnmatchcase(name, spell(pattern)) for pattern in self.names)


DEFAULT_RULES: Final = (
    Rule(event_types=(EventType.FREEZE,), shorter_than=SHORT_FREEZE, then=RuleVerdict.IGNORE),
    Rule(event_types=tuple(EventType), then=RuleVerdict.HANDLE),
    Rule(then=RuleVerdict.NOTIFY),  # a type that this release does not know
)
"""What holds where no rule of the configuration fits."""


def judge(event: Event, me: Identity, rules: tuple[Rule, ...]) -> RuleVerdict:
    """Return what the first of *rules*, or else of the default rules, says about *event*."""
    return next(rule.then for rule in (*rules, *DEFAULT_RULES) if rule.fits(event, me))
