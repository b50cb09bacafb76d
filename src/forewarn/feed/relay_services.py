"""What the server does for relays."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from forewarn.domain.names import HostName, VmName
from forewarn.feed.hub import Hub
from forewarn.ports.metrics import Tally
from forewarn.ports.verbs import Verbs


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class RelayServices:
    """*verbs* are those of the machines of a host; *polled* notes who has polled."""

    hub: Hub
    verbs: Callable[[HostName], Verbs]
    polled: Callable[[Iterable[VmName]], None]
    tally: Tally
