"""Who may do what."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final


class Role(StrEnum):
    """What somebody may do. RELAY is apart from the LADDER of the others."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"
    RELAY = "relay"

    def includes(self, needed: "Role") -> bool:
        """Tell whether this role may do what *needed* may."""
        if self not in LADDER:
            return self is needed
        return needed in LADDER[: LADDER.index(self) + 1]


LADDER: Final = (Role.VIEWER, Role.OPERATOR, Role.ADMIN)
"""The roles of operators; each may also do what those before it may."""

MAY: Final[Mapping[Role, str]] = {
    Role.VIEWER: "read everything but tokens and the audit",
    Role.OPERATOR: (
        "handle events and Maintenances, close and open hosts, "
        "restart and redeploy virtual machines"
    ),
    Role.ADMIN: (
        "change the fleet, tokens, faults, scenarios, notifications and the clock, "
        "pause the server, and read the audit"
    ),
    Role.RELAY: "serve the virtual machines of one host, fetch its work, and nothing else",
}
"""What each role may; those of the ladder besides what the roles before them may."""
