"""What a server tells a front process that it has started: one line on its standard input.

The line has secrets in it, which nobody may find in a list of processes. The input stays open as
long as the front is to serve.
"""

import json
from dataclasses import asdict, dataclass, fields
from typing import Final, Self

SERVING: Final = b"s"
"""What a front says when it serves, again and again."""
ALIVE: Final = b"."
"""What it says until then."""
BEAT_SECONDS: Final = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontOrder:
    """Where to listen, whom to follow, and who callers are. *listeners* are open files."""

    listeners: tuple[int, ...]
    server: str
    """The unix socket on which the server answers fronts."""
    secret: str
    default_vm: str | None
    trust_path: bool
    trusted_proxies: tuple[str, ...]
    proxy_secret: str
    log_format: str
    log_level: str

    def encode(self) -> bytes:
        """Return it as a line."""
        return json.dumps(asdict(self)).encode("ascii") + b"\n"

    @classmethod
    def decode(cls, line: bytes) -> Self:
        """Return what `encode` has encoded."""
        told = json.loads(line)
        for field in fields(cls):
            if isinstance(told[field.name], list):
                told[field.name] = tuple(told[field.name])
        return cls(**told)
