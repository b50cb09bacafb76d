"""Namespaces in which 169.254.169.254 is ours: as root, or with user namespaces."""

import ctypes
import fcntl
import os
import socket
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from forewarn.emulator.variables import METADATA_ADDRESS
from forewarn.protocol.errors import ForewarnError

# The numbers of linux/sched.h, linux/sockios.h and linux/if.h.
_CLONE_NEWUTS: Final = 0x04000000
_CLONE_NEWUSER: Final = 0x10000000
_CLONE_NEWNET: Final = 0x40000000
_SIOCSIFADDR: Final = 0x8916
_SIOCSIFFLAGS: Final = 0x8914
_SIOCSIFNETMASK: Final = 0x891C
_IFF_UP: Final = 0x1
_CAPABILITIES: Final[Mapping[str, int]] = {
    "CAP_NET_BIND_SERVICE": 10,
    "CAP_NET_ADMIN": 12,
    "CAP_SYS_ADMIN": 21,
}
"""What it takes to do without a user namespace, in which we have everything."""
_LONGEST_HOST_NAME: Final = 64
"""What Linux takes."""
_LOOPBACK: Final = "lo"
_ALIAS: Final = "lo:0"


class NamespaceError(ForewarnError):
    """A network namespace that cannot be had."""

    def __init__(self, problem: str, missing: Sequence[str]) -> None:
        remedy = f"; allow user namespaces, or give {' and '.join(missing)}" if missing else ""
        super().__init__(f"Cannot create a network namespace ({problem}){remedy}.")
        self.missing = missing


def enter_network_namespace(host_name: str) -> None:
    """Move this process, which has one thread, into a network with nothing but loopback.

    Sockets that are open already stay where they are. On loopback there is also 169.254.169.254.
    The machine is called *host_name* there.
    """
    missing = _missing_capabilities()
    user, group = os.getuid(), os.getgid()
    try:
        if missing:
            _unshare(_CLONE_NEWUSER | _CLONE_NEWNET | _CLONE_NEWUTS)
            _keep_identity(user, group)
        else:
            _unshare(_CLONE_NEWNET | _CLONE_NEWUTS)
        _set_up_loopback()
        socket.sethostname(host_name[:_LONGEST_HOST_NAME])
    except OSError as error:
        raise NamespaceError(error.strerror or str(error), missing) from error


def _missing_capabilities() -> tuple[str, ...]:
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    (ours,) = (line.split()[1] for line in status.splitlines() if line.startswith("CapEff:"))
    return tuple(name for name, bit in _CAPABILITIES.items() if not int(ours, 16) >> bit & 1)


def _unshare(flags: int) -> None:
    # os.unshare is there from Python 3.12 on.
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(flags) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _keep_identity(user: int, group: int) -> None:
    # Who we were outside we are inside, too, and so is the command that is run in here.
    for name, content in (
        ("setgroups", "deny"),
        ("uid_map", f"{user} {user} 1"),
        ("gid_map", f"{group} {group} 1"),
    ):
        Path("/proc/self", name).write_text(content, encoding="utf-8")


def _set_up_loopback() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as device:
        _configure(device, _SIOCSIFFLAGS, _LOOPBACK, struct.pack("=h", _IFF_UP))
        _configure(device, _SIOCSIFADDR, _ALIAS, _address(METADATA_ADDRESS))
        _configure(device, _SIOCSIFNETMASK, _ALIAS, _address("255.255.255.255"))


def _configure(device: socket.socket, request: int, interface: str, value: bytes) -> None:
    fcntl.ioctl(device, request, struct.pack("=16s24s", interface.encode("ascii"), value))


def _address(text: str) -> bytes:
    return struct.pack("=HH4s", socket.AF_INET, 0, socket.inet_aton(text))
