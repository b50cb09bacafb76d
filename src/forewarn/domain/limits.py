"""How much there may be of something, unless the operator says otherwise."""

from datetime import timedelta
from typing import Final

USER_INITIATED_LIMIT: Final = 10
"""How many user operations may be in flight."""
DOCUMENT_RETENTION: Final = timedelta(days=30)
"""How long served documents are kept."""
FASTEST: Final = 1_000_000
"""How many times as fast a scenario may run, or a server divides what it waits for."""
