"""Who may do what."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final


class Role(StrEnum):
    """What somebody may do; each role may also do what those before it may."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"

    def includes(self, needed: "Role") -> bool:
        """Tell whether this role may do what *needed* may."""
        roles = tuple(Role)
        return roles.index(self) >= roles.index(needed)


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
}
"""What each role may, besides what the roles before it may."""
