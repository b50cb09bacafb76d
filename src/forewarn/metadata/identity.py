"""Who is calling: decided by where the connection comes from, never by what the caller claims.

In this order: on local connections the path prefix `/vm/NAME/`; the source address; the header that
a trusted proxy has signed; on local connections the default virtual machine.
"""

import hmac
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from ipaddress import ip_address, ip_network
from typing import Final

import structlog

from forewarn.domain.topology import VirtualMachine, normalise_address
from forewarn.metadata.asgi import HttpScope, RefusedError
from forewarn.metadata.board import Board
from forewarn.protocol.errors import Refusal

_PREFIX: Final = "/vm/"
_REMEMBERED_STRANGERS: Final = 10_000

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who is calling, if anybody we know, and the path without the prefix that named them."""

    vm: VirtualMachine | None
    path: str
    address: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """The other end of a connection."""

    address: str
    is_local: bool


class Identity:
    """Finds the virtual machine behind a request."""

    def __init__(
        self,
        board: Board,
        *,
        default_vm: str | None = None,
        trusted_proxies: Iterable[str] = (),
        proxy_secret: str = "",
    ) -> None:
        self._board = board
        self._default_vm = default_vm
        self._trusted = tuple(ip_network(proxy, strict=False) for proxy in trusted_proxies)
        self._secret = proxy_secret.encode()
        self._strangers: set[str] = set()

    def identify(self, scope: HttpScope, headers: Mapping[bytes, bytes]) -> Caller:
        """Return who sent *scope*, or refuse what came by a way it may not come."""
        peer = find_peer(scope)
        signed_vm_id = self._signed_vm_id(peer, headers)
        if b"x-forwarded-for" in headers and signed_vm_id is None:
            raise RefusedError(Refusal.FORWARDED)
        path = scope["path"]
        if peer.is_local and path[: len(_PREFIX)].lower() == _PREFIX:
            name, _, rest = path[len(_PREFIX) :].partition("/")
            return Caller(vm=self._board.vm_named(name), path=f"/{rest}", address=peer.address)
        vm = self._board.vm_at(peer.address)
        if vm is None and signed_vm_id is not None:
            vm = self._board.vm_with_id(signed_vm_id)
        elif vm is None and peer.is_local and self._default_vm is not None:
            vm = self._board.vm_named(self._default_vm)
        return Caller(vm=vm, path=path, address=peer.address)

    def note_stranger(self, address: str) -> None:
        """Log an address that belongs to nobody, once, as long as there are not too many."""
        if address in self._strangers or len(self._strangers) >= _REMEMBERED_STRANGERS:
            return
        self._strangers.add(address)
        _log.warning("metadata_caller_unknown", address=address)
        if len(self._strangers) == _REMEMBERED_STRANGERS:
            _log.warning("metadata_callers_no_longer_logged", addresses=_REMEMBERED_STRANGERS)

    def _signed_vm_id(self, peer: Peer, headers: Mapping[bytes, bytes]) -> str | None:
        vm_id = headers.get(b"x-instance-id")
        if vm_id is None or not self._is_trusted(peer):
            return None
        given = headers.get(b"x-instance-id-signature", b"").strip().lower()
        right = hmac.new(self._secret, vm_id, sha256).hexdigest().encode("ascii")
        if not self._secret or not hmac.compare_digest(given, right):
            raise RefusedError(Refusal.SIGNATURE_INVALID)
        return vm_id.decode("latin-1")

    def _is_trusted(self, peer: Peer) -> bool:
        if not self._trusted or not peer.address:
            return False
        address = ip_address(peer.address)
        return any(address in network for network in self._trusted)


def find_peer(scope: HttpScope) -> Peer:
    """Return the other end; over a unix socket it has no address."""
    client, server = scope["client"], scope["server"]
    if client is None:
        # A peer that hung up at once has no address either, but its server end has a port.
        return Peer(address="", is_local=server is not None and server[1] is None)
    address = normalise_address(client[0])
    is_local = address == "::1" or address.startswith("127.")
    if not is_local and server is not None:
        is_local = address == normalise_address(server[0])
    return Peer(address=address, is_local=is_local)
