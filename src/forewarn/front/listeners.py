"""Where a relay listens for its virtual machines."""

import errno
import os
import socket
from collections.abc import Iterator

from forewarn.front.settings import RelaySettings
from forewarn.metadata.http import open_listener, open_unix_listener
from forewarn.protocol.errors import ForewarnError
from forewarn.wording.addresses import TcpAddress, UnixAddress, parse_address


class ListeningError(ForewarnError):
    """An address that the relay cannot listen on."""


def open_listeners(settings: RelaySettings) -> Iterator[socket.socket]:
    """Yield a listener for each address, and for each interface if there are any."""
    for address in settings.metadata:
        where = parse_address(address)
        for interface in settings.interface or ("",):
            try:
                yield _open(where, interface)
            except OSError as error:
                raise _explain(error, address, interface) from error


def _open(where: TcpAddress | UnixAddress, interface: str) -> socket.socket:
    if isinstance(where, UnixAddress):
        return open_unix_listener(where.path)
    return open_listener(where.host, where.port, interface)


def _explain(error: OSError, address: str, interface: str) -> ListeningError:
    place = f"{address} on {interface}" if interface else address
    match error.errno:
        case errno.EADDRNOTAVAIL:
            host = address.rpartition(":")[0]
            device = interface or "BRIDGE"
            remedy = f"Add the address: ip address add {host}/32 dev {device}"
        case errno.ENODEV:
            remedy = "List the interfaces: ip link"
        case errno.EADDRINUSE:
            remedy = "Choose another address with --metadata."
        case errno.EACCES | errno.EPERM:
            remedy = "Run the relay as root, or with CAP_NET_BIND_SERVICE and CAP_NET_RAW."
        case _:
            remedy = ""
    problem = os.strerror(error.errno) if error.errno else str(error)
    return ListeningError(f"Cannot listen on {place}: {problem}. {remedy}".rstrip())
