"""What virtual machines are shown, and could read at any moment gone by."""

from collections.abc import Iterable
from datetime import datetime
from typing import Protocol

from forewarn.domain.names import ScopeId
from forewarn.ports.entries import DocumentKey, Showing
from forewarn.protocol.document import Document


class DocumentReading(Protocol):
    """A look at documents."""

    def document(self, scope_id: ScopeId, /) -> Document:
        """Return the scope's current document; `FIRST_DOCUMENT` if it never had one."""

    def documents(self, scope_ids: Iterable[ScopeId] | None = None) -> dict[ScopeId, Document]:
        """Return the current document of every scope of the topology, or of these."""

    def document_at(self, scope_id: ScopeId, /, at: datetime) -> Document:
        """Return what the scope was shown at a moment; `FIRST_DOCUMENT` before its first."""

    def superseded_documents(self, before: datetime, *, limit: int) -> tuple[DocumentKey, ...]:
        """Return documents that nobody could read at *before* or later: newer ones were there."""

    def showing(self, at: datetime) -> Showing | None:
        """Return the last one that was recorded at *at* or before."""


class DocumentWriting(DocumentReading, Protocol):
    """A look at documents that may also change them."""

    def put_document(self, scope_id: ScopeId, /, document: Document, *, at: datetime) -> None: ...

    def remove_documents(self, documents: Iterable[DocumentKey]) -> None: ...

    def put_showings(self, showings: Iterable[Showing]) -> None: ...

    def prune_showings(self, *, before: datetime) -> None: ...
