"""The address that Microsoft's sample of 2017 leaves in the registry of Windows."""

import sys
from ipaddress import IPv4Address

if sys.platform == "win32":
    import winreg


def read_registry() -> IPv4Address | None:
    """Return the address in the registry; elsewhere than on Windows there is none."""
    if sys.platform == "win32":
        try:
            with winreg.OpenKey(winreg.HKEY_LOCAL_MACHINE, r"Software\ScheduledEvents") as key:
                return IPv4Address(winreg.QueryValueEx(key, "ScheduledEventsIp")[0])
        except (OSError, ValueError):  # nobody has put it there, or it is not a valid address
            return None
    return None
