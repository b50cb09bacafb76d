"""The board: every document as bytes, ready to be sent, and who may read which.

It is fed in one of two ways. From the store, by `put_up`, on any thread: what readers look at is
replaced then, never altered, so that they need no lock. Or in small parts, by `put` and `remove`,
on the event loop of the readers: entries are altered in place, so that no part takes long, however
large the fleet is. Either way the documents of a change are put up before its machines, so that a
virtual machine that moves never sees the old document of its new scope.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

from forewarn.domain.names import ScopeId, VmName, name_key
from forewarn.domain.publication import FIRST_DOCUMENT
from forewarn.domain.topology import (
    NO_FLEET,
    DeliveryScope,
    Directory,
    Topology,
    VirtualMachine,
    known_addresses,
    normalise_address,
    slim_key,
)
from forewarn.metadata.asgi import CONTENT_TYPE_JSON, Header
from forewarn.metadata.waiting import Waiters
from forewarn.ports.board import Posting
from forewarn.protocol.document import Document, encode_document
from forewarn.protocol.versions import NEWEST, VERSIONS_BY_NAME, ApiVersion


class Register:
    """Virtual machines by what they are known by, and scopes. One thread alters and reads it."""

    def __init__(self) -> None:
        self.by_name: dict[str, VirtualMachine] = {}
        self.by_vm_id: dict[str, VirtualMachine] = {}
        self.by_address: dict[str, VirtualMachine] = {}
        self.scopes: dict[ScopeId, DeliveryScope] = {}

    def put(self, vm: VirtualMachine) -> VirtualMachine | None:
        """Enter *vm*, and return what was known of it before."""
        key = slim_key(vm.name)
        before = self.by_name.get(key)
        if before is not None:
            self._forget(before)
        self.by_name[key] = vm
        if vm.vm_id:
            self.by_vm_id[slim_key(vm.vm_id)] = vm
        for address in known_addresses(vm):
            self.by_address[address] = vm
        return before

    def remove(self, name: VmName) -> VirtualMachine | None:
        """Strike out the virtual machine of exactly this *name*, and return it if it was there."""
        known = self.by_name.get(name_key(name))
        if known is None or known.name != name:  # another one of this name in other letters
            return None
        del self.by_name[name_key(name)]
        self._forget(known)
        return known

    def _forget(self, vm: VirtualMachine) -> None:
        # What another one has taken over by now stays.
        if vm.vm_id and self.by_vm_id.get(name_key(vm.vm_id)) is vm:
            del self.by_vm_id[name_key(vm.vm_id)]
        for address in known_addresses(vm):
            if self.by_address.get(address) is vm:
                del self.by_address[address]


@dataclass(frozen=True, slots=True)
class PrintedDocument:
    """One document as one api-version shows it, ready to be sent.

    A *head* is whole but for what differs from answer to answer, and the blank line.
    """

    body: bytes
    etag: bytes
    headers: tuple[Header, ...]
    not_modified_headers: tuple[Header, ...]
    head: bytes
    not_modified_head: bytes


Pages: TypeAlias = Mapping[str, PrintedDocument]


class Board:
    """What every delivery scope is shown, and who is in it."""

    def __init__(self) -> None:
        self.waiters = Waiters()
        self._print_empty = lru_cache(maxsize=1024)(self._print_one_for_all)
        self._first_pages = self.print(FIRST_DOCUMENT)
        self._documents: dict[ScopeId, Document] = {}
        self._pages: dict[ScopeId, Pages] = {}
        self.topology = NO_FLEET
        """The fleet as polls see it, if it comes from the store."""
        self._register = Register()
        self._directory: Directory | Register = self._register
        self._scopes: Mapping[ScopeId, DeliveryScope] = self._register.scopes
        self.generation = 0
        """How often something has changed: who is who, what they read, or how they are treated."""
        self.is_whole = True
        """Whether whoever is not here is unknown; a relay may not have been told all yet."""
        self._listeners: tuple[Callable[[Posting], None], ...] = ()

    def listen(self, listener: Callable[[Posting], None]) -> None:
        """Tell *listener* of what is put up from the store, on the thread that puts it up."""
        self._listeners = (*self._listeners, listener)

    def put_up(
        self,
        documents: Mapping[ScopeId, Document],
        topology: Topology | None = None,
        *,
        is_everything: bool = False,
    ) -> None:
        """Put up *documents*, then *topology*; when this returns, every poll sees them.

        If they are *everything* that there is, they count even where older than what is shown: the
        database may have been replaced by an older one.
        """
        fresh = [
            scope_id
            for scope_id, document in documents.items()
            if self.is_news(scope_id, document.document_incarnation)
            or (is_everything and self._documents[scope_id] != document)
        ]
        gone = self._documents.keys() - documents.keys() if is_everything else ()
        for scope_id in gone:
            self._forget(scope_id)
        for scope_id in fresh:
            self._show(scope_id, documents[scope_id], self.print(documents[scope_id]))
        if topology is not None:
            self._directory, self._scopes = topology.directory, topology.scopes
            self.topology = topology
        self.generation += 1
        self.waiters.wake(fresh if topology is None else None)
        posting = Posting(scope_ids=(*fresh, *gone), topology=self.topology)
        for listener in self._listeners:
            listener(posting)

    def put(
        self,
        printed: Mapping[ScopeId, tuple[Document, Pages]],
        scopes: Mapping[ScopeId, DeliveryScope],
        virtual_machines: Iterable[VirtualMachine],
    ) -> None:
        """Put up a small part of what is shown: documents, as `print` has made them, go first.

        A document that is not newer than what is shown is left out.
        """
        concerned = set()
        for scope_id, (document, pages) in printed.items():
            if self.is_news(scope_id, document.document_incarnation):
                self._show(scope_id, document, pages)
                concerned.add(scope_id)
        self._register.scopes.update(scopes)
        for vm in virtual_machines:
            before = self._register.put(vm)
            if before is not None and before.scope_id != vm.scope_id:
                concerned.add(before.scope_id)
        self.generation += 1
        self.waiters.wake(concerned)

    def remove(self, virtual_machines: Iterable[VmName], scope_ids: Iterable[ScopeId] = ()) -> None:
        """Take down a small part of what was put up with `put`."""
        gone = (self._register.remove(name) for name in virtual_machines)
        concerned = {vm.scope_id for vm in gone if vm is not None}
        for scope_id in scope_ids:
            self._register.scopes.pop(scope_id, None)
            self._forget(scope_id)
            concerned.add(scope_id)
        self.generation += 1
        self.waiters.wake(concerned)

    def look_again(self) -> None:
        """Have every poll looked at anew: somebody is treated in another way from now on."""
        self.generation += 1
        self.waiters.wake()

    def page(self, vm: VirtualMachine, version: str) -> PrintedDocument:
        """Return what *vm* reads under *version*."""
        return self._pages.get(vm.scope_id, self._first_pages)[version]

    def document_of(self, name: VmName) -> Document | None:
        """Return the current document of the virtual machine called *name*, if there is one."""
        vm = self.vm_named(name)
        return None if vm is None else self.document(vm)

    def document(self, vm: VirtualMachine) -> Document:
        """Return the current document of *vm*."""
        return self.document_in(vm.scope_id)

    def document_in(self, scope_id: ScopeId) -> Document:
        """Return the current document of the scope."""
        return self._documents.get(scope_id, FIRST_DOCUMENT)

    def is_news(self, scope_id: ScopeId, document_incarnation: int) -> bool:
        """Tell whether the scope shows an older document than this one, or none."""
        # Changes of one scope may overtake each other on their way; incarnations only ever grow.
        known = self._documents.get(scope_id)
        return known is None or known.document_incarnation < document_incarnation

    async def await_document(
        self, scope_id: ScopeId, document_incarnation: int, seconds: float
    ) -> bool:
        """Wait until the scope shows this document or a later one; tell whether it does."""

        def where_to_wait() -> ScopeId | None:
            known = self.document_in(scope_id).document_incarnation
            return scope_id if known < document_incarnation else None

        await self.waiters.wait(where_to_wait, until=asyncio.Event(), seconds=seconds)
        return where_to_wait() is None

    def vm_named(self, name: str) -> VirtualMachine | None:
        return self._directory.by_name.get(name_key(name))

    def vm_with_id(self, vm_id: str) -> VirtualMachine | None:
        return self._directory.by_vm_id.get(name_key(vm_id))

    def vm_at(self, address: str) -> VirtualMachine | None:
        """Return who has *address*, however it is written."""
        by_address = self._directory.by_address
        return by_address.get(address) or by_address.get(normalise_address(address))

    def delivery_scope(self, vm: VirtualMachine) -> DeliveryScope | None:
        return self._scopes.get(vm.scope_id)

    @property
    def parts(self) -> tuple[tuple[VirtualMachine, ...], Mapping[ScopeId, DeliveryScope]]:
        """The virtual machines and scopes that were put up with `put`."""
        return tuple(self._register.by_name.values()), dict(self._register.scopes)

    def _show(self, scope_id: ScopeId, document: Document, pages: Pages) -> None:
        self._documents[scope_id] = document
        self._pages[scope_id] = pages

    def _forget(self, scope_id: ScopeId) -> None:
        self._documents.pop(scope_id, None)
        self._pages.pop(scope_id, None)

    def print(self, document: Document) -> Pages:
        """Return *document* as each version shows it; on any thread."""
        if not document.events:  # nothing that versions could show in different ways
            return self._print_empty(document.document_incarnation)
        printed: dict[object, PrintedDocument] = {}
        pages: dict[str, PrintedDocument] = {}
        for name, version in VERSIONS_BY_NAME.items():
            look = _look(document, version)
            if look not in printed:
                printed[look] = print_page(document, version)
            pages[name] = printed[look]
        return pages

    def _print_one_for_all(self, document_incarnation: int) -> Pages:
        empty = Document(document_incarnation=document_incarnation)
        return dict.fromkeys(VERSIONS_BY_NAME, print_page(empty, NEWEST))


def _look(document: Document, version: ApiVersion) -> object:
    # Versions that show this document alike share its bytes.
    shown = tuple(event.event_type in version.event_types for event in document.events)
    return version.fields, version.not_before, shown


def print_page(document: Document, version: ApiVersion) -> PrintedDocument:
    """Return *document* as *version* shows it."""
    body = encode_document(document, version)
    etag = str(document.document_incarnation).encode("ascii")
    length = str(len(body)).encode("ascii")
    headers = (CONTENT_TYPE_JSON, (b"Content-Length", length), (b"ETag", etag))
    return PrintedDocument(
        body=body,
        etag=etag,
        headers=headers,
        not_modified_headers=headers[2:],
        head=_write_head(b"200 OK", headers),
        not_modified_head=_write_head(b"304 Not Modified", headers[2:]),
    )


def _write_head(status: bytes, headers: tuple[Header, ...]) -> bytes:
    lines = (name + b": " + value + b"\r\n" for name, value in headers)
    return b"HTTP/1.1 " + status + b"\r\n" + b"".join(lines)
