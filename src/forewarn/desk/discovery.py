"""The sources that the fleet follows, as operators see them."""

from forewarn.desk.caller import Caller
from forewarn.operations.discovery import SourceStatus, find_sources


def list_sources(caller: Caller) -> tuple[SourceStatus, ...]:
    """Return how the sources are; what they say is about the whole fleet, so not to everybody."""
    return () if caller.principal.scopes else caller.read(find_sources)
