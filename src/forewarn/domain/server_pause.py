"""A pause of the whole server: what has begun runs out, and nothing else begins."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerPause:
    """Who has paused the server, since when in maintenance time, and why if they said so."""

    who: str
    since: datetime
    reason: str = ""

    def __str__(self) -> str:
        return f"{self.who} ({self.reason})" if self.reason else self.who
