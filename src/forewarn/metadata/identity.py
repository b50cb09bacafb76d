"""Who is calling.

A trusted proxy speaks for the virtual machine whose id it has signed, and for nobody else. For any
other caller, in this order: the path prefix `/vm/NAME/` where it is trusted; the source address; on
local connections the default virtual machine. Without the prefix nothing a caller claims matters.
"""

import hmac
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from hashlib import sha256
from ipaddress import ip_address, ip_network
from typing import Final

import structlog

from forewarn.connections.crowd import LOCAL_SOCKET, Origin, origin_of
from forewarn.connections.forwarding import FORWARDED_FOR, FORWARDING
from forewarn.domain.topology import VirtualMachine, is_link_local, normalise_address
from forewarn.metadata.asgi import HttpScope, MetadataRefusedError
from forewarn.metadata.board import Board
from forewarn.protocol.errors import Refusal

_PREFIX: Final = "/vm/"
_REMEMBERED_STRANGERS: Final = 10_000

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataCaller:
    """Who is calling, if anybody we know, and the path without the prefix that named them."""

    vm: VirtualMachine | None
    path: str
    address: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """The other end of a connection."""

    address: str
    is_local: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """Whom a request says it comes from: a *name* in its path, or an id that a proxy has signed.

    It *is_forwarded* if a proxy says that it passes it on.
    """

    name: str | None = None
    signed_id: str | None = None
    is_forwarded: bool = False


class Identifier:
    """Finds the virtual machine behind a request."""

    def __init__(
        self,
        board: Board,
        *,
        default_vm: str | None = None,
        trust_path: bool = False,
        trusted_proxies: Iterable[str] = (),
        proxy_secret: str = "",
    ) -> None:
        self._board = board
        self._default_vm = default_vm
        self._trust_path = trust_path
        self._proxies = tuple(ip_network(proxy, strict=False) for proxy in trusted_proxies)
        self._is_proxy = lru_cache(maxsize=1024)(self._look_for_proxy)
        self._secret = proxy_secret.encode()
        self._strangers: set[str] = set()

    def identify(self, scope: HttpScope, headers: Mapping[bytes, bytes]) -> MetadataCaller:
        """Return who sent *scope*, or refuse what came by a way it may not come."""
        if b"origin" in headers:
            raise MetadataRefusedError(Refusal.ORIGIN)
        peer, path = find_peer(scope["client"], scope["server"]), scope["path"]
        if self._is_proxy(peer.address):
            return MetadataCaller(vm=self._behind_proxy(headers), path=path, address=peer.address)
        if FORWARDED_FOR in headers:
            raise MetadataRefusedError(Refusal.FORWARDED)
        if name_in(path) is not None:
            return self._named_by(path, peer, headers)
        return MetadataCaller(vm=self.vm_of(peer), path=path, address=peer.address)

    def read_claim(self, name: str | None, headers: Mapping[bytes, bytes]) -> Claim:
        """Return whom a request with *name* in its path and with *headers* says it comes from."""
        vm_id = headers.get(b"x-instance-id")
        is_signed = vm_id is not None and self._is_signed(vm_id, headers)
        # Whoever names itself in the path may not have come through any proxy.
        suspicious = {FORWARDED_FOR} if name is None else FORWARDING
        return Claim(
            name=name,
            signed_id=vm_id.decode("latin-1") if vm_id is not None and is_signed else None,
            is_forwarded=not suspicious.isdisjoint(headers),
        )

    def believe(self, peer: Peer, claim: Claim) -> VirtualMachine | None:
        """Return who sent a request; None if it is nobody, or a request to take a closer look at.

        Whomever this returns is who `identify` would find.
        """
        if self._proxies and self._is_proxy(peer.address):
            is_whole = claim.name is None and claim.signed_id is not None
            return self._board.vm_with_id(claim.signed_id or "") if is_whole else None
        if claim.is_forwarded:
            return None
        if claim.name is not None:
            return self._board.vm_named(claim.name) if self._trust_path else None
        return self._board.vm_at(peer.address) or self._default(peer)

    def vm_of(self, peer: Peer) -> VirtualMachine | None:
        """Return who is at *peer*, whatever it says; nobody, if that is a proxy."""
        if self._is_proxy(peer.address):
            return None
        return self._board.vm_at(peer.address) or self._default(peer)

    def _default(self, peer: Peer) -> VirtualMachine | None:
        if self._default_vm is None or not peer.is_local:
            return None
        return self._board.vm_named(self._default_vm)

    def find_origin(self, address: str | None) -> Origin:
        """Return with whom a connection from *address* counts; None is a unix socket.

        An address that many virtual machines may come from has no share that it cannot exceed.
        """
        if address is None:
            return LOCAL_SOCKET
        if self._is_proxy(address):
            return Origin(name=address, is_known=True, has_share=False)
        vm = self._board.vm_at(address)
        if vm is not None:
            return _origin_of_vm(vm.name, has_share=not self._trust_path)
        return _origin_of_stranger(address, has_share=not self._trust_path)

    def note_stranger(self, address: str) -> None:
        """Log an address that belongs to nobody, once, as long as there are not too many."""
        if address in self._strangers or len(self._strangers) >= _REMEMBERED_STRANGERS:
            return
        self._strangers.add(address)
        _log.warning("metadata_caller_unknown", address=address)
        if len(self._strangers) == _REMEMBERED_STRANGERS:
            _log.warning("metadata_callers_no_longer_logged", addresses=_REMEMBERED_STRANGERS)

    def _named_by(self, path: str, peer: Peer, headers: Mapping[bytes, bytes]) -> MetadataCaller:
        if not self._trust_path:
            raise MetadataRefusedError(Refusal.PATH_UNTRUSTED)
        if not FORWARDING.isdisjoint(headers):
            raise MetadataRefusedError(Refusal.PATH_FORWARDED)
        name, _, rest = path[len(_PREFIX) :].partition("/")
        return MetadataCaller(vm=self._board.vm_named(name), path=f"/{rest}", address=peer.address)

    def _behind_proxy(self, headers: Mapping[bytes, bytes]) -> VirtualMachine | None:
        vm_id = headers.get(b"x-instance-id")
        if vm_id is None and FORWARDED_FOR in headers:
            raise MetadataRefusedError(Refusal.FORWARDED)
        if vm_id is None:
            return None
        if not self._is_signed(vm_id, headers):
            raise MetadataRefusedError(Refusal.SIGNATURE_INVALID)
        return self._board.vm_with_id(vm_id.decode("latin-1"))

    def _is_signed(self, vm_id: bytes, headers: Mapping[bytes, bytes]) -> bool:
        given = headers.get(b"x-instance-id-signature", b"").strip().lower()
        right = hmac.new(self._secret, vm_id, sha256).hexdigest().encode("ascii")
        return bool(self._secret) and hmac.compare_digest(given, right)

    def _look_for_proxy(self, address: str) -> bool:
        if not self._proxies or not address:
            return False
        parsed = ip_address(normalise_address(address))
        return any(parsed in network for network in self._proxies)


@lru_cache(maxsize=4096)
def _origin_of_vm(name: str, *, has_share: bool) -> Origin:
    return Origin(name=f"vm {name}", is_known=True, has_share=has_share)


@lru_cache(maxsize=4096)
def _origin_of_stranger(address: str, *, has_share: bool) -> Origin:
    return replace(origin_of(address), has_share=has_share)


def name_in(path: str) -> str | None:
    """Return the name of the virtual machine that *path* claims to come from, if it does."""
    if path[: len(_PREFIX)].lower() != _PREFIX:
        return None
    return path[len(_PREFIX) :].partition("/")[0]


def find_peer(client: tuple[str, int] | None, server: tuple[str, int | None] | None) -> Peer:
    """Return the other end; over a unix socket it has no address."""
    if client is None:
        # A peer that hung up at once has no address either, but its server end has a port.
        return Peer(address="", is_local=server is not None and server[1] is None)
    return _peer_at(client[0], None if server is None else server[0])


@lru_cache(maxsize=4096)
def _peer_at(client: str, server: str | None) -> Peer:
    address = normalise_address(client)
    is_local = address == "::1" or address.startswith("127.")
    if not is_local and server is not None and not is_link_local(address):
        is_local = address == normalise_address(server)
    return Peer(address=address, is_local=is_local)
