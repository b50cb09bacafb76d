"""The board: every document as bytes, ready to be sent, and who may read which.

Rules of this file: what readers look at is replaced, never altered, so that they need no lock; the
documents of a change are put up before its topology, so that a virtual machine that moves never
sees the old document of its new scope. The board listens before it first reads, so that it misses
no commit; incarnations and the version of the topology keep it from putting anything up twice.
Whoever writes waits while the board is told, so that it reads a whole topology on its own thread.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from threading import Lock
from typing import Final, TypeAlias

from forewarn.domain.names import ScopeId, VmName, name_key
from forewarn.domain.publication import FIRST_DOCUMENT
from forewarn.domain.topology import (
    NO_FLEET,
    DeliveryScope,
    Topology,
    VirtualMachine,
    normalise_address,
)
from forewarn.metadata.asgi import CONTENT_TYPE_JSON, Header
from forewarn.metadata.waiting import Waiters
from forewarn.ports.changes import ChangeListener, StoreChange
from forewarn.ports.store import Reading, Store, StoreError
from forewarn.protocol.document import Document, encode_document
from forewarn.protocol.versions import NEWEST, ApiVersion
from forewarn.rounds import Rounds


@dataclass(frozen=True, slots=True)
class PrintedDocument:
    """One document as one api-version shows it, ready to be sent."""

    body: bytes
    etag: bytes
    headers: tuple[Header, ...]
    not_modified_headers: tuple[Header, ...]
    head: bytes
    not_modified_head: bytes


Pages: TypeAlias = Mapping[str, PrintedDocument]


class Board:
    """What every delivery scope is shown, and who is in it."""

    def __init__(self, versions: Mapping[str, ApiVersion]) -> None:
        self.versions = versions
        self.waiters = Waiters()
        self._changing = Lock()
        self._behind: StoreChange | None = StoreChange()
        """The oldest change that is not put up yet."""
        self._has_documents = False
        """Whether all of them are up that were told of."""
        self._read_again: Callable[[], None] = lambda: None
        self.rounds: Final = Rounds("board", self.catch_up, every=1, is_thorough=True)
        self._first_pages = self._print(FIRST_DOCUMENT)
        self._documents: dict[ScopeId, Document] = {}
        self._pages: dict[ScopeId, Pages] = {}
        self.topology = NO_FLEET
        """The fleet as polls see it."""
        self._directory = NO_FLEET.directory
        self._topology_version = 0

    def follow(self, store: Store, shown: ChangeListener = lambda _: None) -> None:
        """Put up all that *store* has, and from now on what it commits, before it is answered.

        *shown* is told of each change that is put up; of many at once, of the first of them.
        """
        note = partial(self._note, store, shown)
        self._read_again = partial(self._read_all, store, note)
        store.listen(note)
        self._read_again()

    def catch_up(self) -> None:
        """Read what could not be read before, for there may be no other change for long."""
        if self._behind:
            with suppress(StoreError):  # it was logged when it changed, and is tried again soon
                self._read_again()

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
            if self._is_news(scope_id, document.document_incarnation)
            or (is_everything and self._documents[scope_id] != document)
        ]
        if is_everything:
            for scope_id in self._documents.keys() - documents.keys():
                del self._documents[scope_id]
                del self._pages[scope_id]
        for scope_id in fresh:
            self._documents[scope_id] = documents[scope_id]
            self._pages[scope_id] = self._print(documents[scope_id])
        if topology is not None:
            self._directory, self.topology = topology.directory, topology
        self.waiters.wake(fresh if topology is None else None)

    def page(self, vm: VirtualMachine, version: str) -> PrintedDocument:
        """Return what *vm* reads under *version*."""
        return self._pages.get(vm.scope_id, self._first_pages)[version]

    def document_of(self, name: VmName) -> Document | None:
        """Return the current document of the virtual machine called *name*, if there is one."""
        vm = self.vm_named(name)
        return None if vm is None else self.document(vm)

    def document(self, vm: VirtualMachine) -> Document:
        """Return the current document of *vm*."""
        return self._documents.get(vm.scope_id, FIRST_DOCUMENT)

    def vm_named(self, name: str) -> VirtualMachine | None:
        return self._directory.by_name.get(name_key(name))

    def vm_with_id(self, vm_id: str) -> VirtualMachine | None:
        return self._directory.by_vm_id.get(name_key(vm_id))

    def vm_at(self, address: str) -> VirtualMachine | None:
        """Return who has *address*, however it is written."""
        by_address = self._directory.by_address
        return by_address.get(address) or by_address.get(normalise_address(address))

    def delivery_scope(self, vm: VirtualMachine) -> DeliveryScope | None:
        return self.topology.scopes.get(vm.scope_id)

    def _read_all(self, store: Store, note: ChangeListener) -> None:
        note(StoreChange())
        if self._behind:
            # Nobody waits for this thread. Then the topology is at hand, and who is who in it.
            store.read(lambda reading: reading.topology().directory)
            note(StoreChange())

    def _note(self, store: Store, shown: ChangeListener, change: StoreChange) -> None:
        with self._changing:
            # All documents are read at first, and again after some could not be.
            is_behind = not self._has_documents or change.is_gap
            # The oldest that is not shown yet: nothing recorded since then was served. The empty
            # change that is behind from the start gives way to the first real one.
            has_moved = self._behind is not None or change.is_gap
            if self._behind is None or self._behind.recorded_at is None:
                self._behind = change
            news = [
                scope
                for scope, number in change.incarnations.items()
                if self._is_news(scope, number)
            ]
            has_moved |= (change.topology_version or 0) > self._topology_version
            if news or has_moved or is_behind:
                self._has_documents = False
                is_whole = self._read(store, None if is_behind else news, has_moved=has_moved)
                self._has_documents = True
                if not is_whole:
                    self.rounds.wake()
                    return
            shown(self._behind)
            self._behind = None

    def _read(self, store: Store, scope_ids: list[ScopeId] | None, *, has_moved: bool) -> bool:
        """Put up what *store* has; tell whether the topology was at hand, if it *has_moved*."""

        def look(reading: Reading) -> tuple[dict[ScopeId, Document], tuple[int, Topology] | None]:
            documents = reading.documents(scope_ids)
            return documents, reading.topology_at_hand() if has_moved else None

        documents, moved = store.read(look)
        self.put_up(documents, moved and moved[1], is_everything=scope_ids is None)
        if moved is not None:
            self._topology_version, _ = moved
        return moved is not None or not has_moved

    def _is_news(self, scope_id: ScopeId, document_incarnation: int) -> bool:
        # Changes of one scope may overtake each other on their way; incarnations only ever grow.
        known = self._documents.get(scope_id)
        return known is None or known.document_incarnation < document_incarnation

    def _print(self, document: Document) -> Pages:
        if not document.events:  # nothing that versions could show in different ways
            return dict.fromkeys(self.versions, _print_empty(document.document_incarnation))
        printed: dict[object, PrintedDocument] = {}
        pages: dict[str, PrintedDocument] = {}
        for name, version in self.versions.items():
            look = _look(document, version)
            if look not in printed:
                printed[look] = print_page(document, version)
            pages[name] = printed[look]
        return pages


def _look(document: Document, version: ApiVersion) -> object:
    # Versions that show this document alike share its bytes.
    shown = tuple(event.event_type in version.event_types for event in document.events)
    return version.fields, version.not_before, version.underscored_names, shown


@lru_cache(maxsize=1024)
def _print_empty(document_incarnation: int) -> PrintedDocument:
    return print_page(Document(document_incarnation=document_incarnation), NEWEST)


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
