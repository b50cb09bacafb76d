"""How parts of the server count what they do, at the price of an addition.

Whoever exports the figures comes and reads them; nothing here knows of that.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence

from forewarn.protocol.versions import VERSIONS_BY_NAME


class Distribution:
    """How often values up to each of *bounds*, and above, were seen. One thread observes."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.total = 0.0
        self._counts = [0] * (len(self.bounds) + 1)

    def observe(self, value: float) -> None:
        """Count *value*."""
        self._counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    @property
    def counts(self) -> tuple[int, ...]:
        """How many values were in each part; the last is above all bounds."""
        return tuple(self._counts)


class Tally:
    """What the metadata endpoint has answered. Its event loop counts; others only read."""

    def __init__(self) -> None:
        self.polls = dict.fromkeys(VERSIONS_BY_NAME, 0)
        """GETs of the document, by api-version."""
        self.posts = 0
        """POSTs, whatever came of them."""
        self.refusals: Counter[int] = Counter()
        """Answers of 400 and above, by status."""

    def add(self, polls: Mapping[str, int], posts: int, refusals: Mapping[int, int]) -> None:
        """Count what a relay has answered; versions that this release does not know are not."""
        for version in self.polls.keys() & polls.keys():
            self.polls[version] += polls[version]
        self.posts += posts
        self.refusals.update(refusals)
