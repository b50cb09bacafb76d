"""Find option 245 in what the DHCP clients of Linux leave behind, or in the registry of Windows.

Each reader takes the content of a file and returns the address in it, or None; whatever the file
contains, it does not raise.
"""

import re
import sys
from collections.abc import Callable, Iterator, Mapping
from ipaddress import IPv4Address
from pathlib import Path
from typing import Final

from forewarn.client._dhcp import METADATA_SERVER, read_options, to_address

if sys.platform == "win32":
    import winreg


def read_dhclient(content: bytes) -> IPv4Address | None:
    r"""Read a lease file of ISC dhclient, where the last lease counts.

    The value is `a8:3f:81:10`, or `"A\"\\$"` where the four bytes happen to be printable.
    """
    found = re.findall(
        rb'^[ \t]*option unknown-245 (?:"(.*)"|([0-9a-f:]+));$', content, re.MULTILINE
    )
    if not found:
        return None
    quoted, digits = found[-1]
    return to_address(re.sub(rb"\\(.)", rb"\1", quoted)) if quoted else _from_digits(digits)


def read_networkd(content: bytes) -> IPv4Address | None:
    """Read a lease file of systemd-networkd, or of NetworkManager when that used its code."""
    found = re.search(rb"^OPTION_245=([0-9a-f]{8})$", content, re.MULTILINE)
    return to_address(bytes.fromhex(found[1].decode("ascii"))) if found else None


def read_network_manager(content: bytes) -> IPv4Address | None:
    """Read NetworkManager's state of a device, which has the lease, whoever got it."""
    found = re.search(rb"^dhcp4\.(?:private|unknown)_245=([0-9a-f:]+)$", content, re.MULTILINE)
    return _from_digits(found[1]) if found else None


def read_dhcpcd(content: bytes) -> IPv4Address | None:
    """Read a lease file of dhcpcd, which is the packet that the server sent."""
    return to_address(read_options(content).get(METADATA_SERVER, b""))


LEASE_FILES: Final[Mapping[str, Callable[[bytes], IPv4Address | None]]] = {
    "var/lib/dhcp/dhclient*.leases": read_dhclient,
    "var/lib/dhclient/dhclient*.lease*": read_dhclient,
    "var/lib/NetworkManager/dhclient-*.lease": read_dhclient,
    "var/lib/NetworkManager/internal-*.lease": read_networkd,
    "run/NetworkManager/devices/*": read_network_manager,
    "run/systemd/netif/leases/*": read_networkd,
    "var/lib/dhcpcd/*.lease": read_dhcpcd,
    "var/lib/dhcpcd5/*.lease": read_dhcpcd,
}
"""Where leases are, below the root directory, and who reads them."""


def find_leases(root: Path = Path("/")) -> Iterator[IPv4Address]:
    """Yield the addresses in the leases of this machine, the newest lease first."""
    files = [(path, read) for pattern, read in LEASE_FILES.items() for path in root.glob(pattern)]
    for path, read in sorted(files, key=lambda file: _changed_at(file[0]), reverse=True):
        try:
            address = read(path.read_bytes())
        except OSError:  # another user's, or gone meanwhile
            continue
        if address is not None:
            yield address


def read_registry() -> IPv4Address | None:
    """Return the address that Microsoft's sample of 2017 leaves on Windows, if any."""
    if sys.platform == "win32":
        try:
            with winreg.OpenKey(winreg.HKEY_LOCAL_MACHINE, r"Software\ScheduledEvents") as key:
                return IPv4Address(winreg.QueryValueEx(key, "ScheduledEventsIp")[0])
        except (OSError, ValueError):  # nobody has put it there, or it is not a valid address
            return None
    return None


def _from_digits(digits: bytes) -> IPv4Address | None:
    # dhclient writes 10.0.1.9 as a:0:1:9
    try:
        return to_address(bytes(int(digit, 16) for digit in digits.split(b":")))
    except ValueError:
        return None


def _changed_at(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
