"""The time machine: the bytes that a virtual machine could read at a moment gone by.

They follow from what is stored: the documents of each scope, and who was in which scope from when
on. What nobody may ask for any more is forgotten.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from forewarn.domain.errors import ConflictError, InvalidError, UnknownVirtualMachineError, says
from forewarn.domain.names import ScopeId
from forewarn.operations.context import Context
from forewarn.ports.entries import DocumentKey, MembershipKey, Showing
from forewarn.ports.store import Reading, Transaction
from forewarn.protocol.document import encode_document
from forewarn.protocol.versions import VERSIONS_BY_NAME

_FORGOTTEN_BEFORE = "documents_forgotten_before"


@says("{problem}")
class NotSeenError(ConflictError):
    """A moment at which what could be read is not known. *since* is from when on it is."""

    problem: str
    since: datetime | None = None


class UnknownApiVersionError(InvalidError):
    """An api-version that was never served."""

    def __init__(self, name: str, known: Iterable[str]) -> None:
        super().__init__(f"Unknown api-version {name[:40]!r}; use {', '.join(known)}.")


def see(
    reading: Reading,
    context: Context,
    vm: str,
    at: datetime,
    api_version: str,
    *,
    pending: Iterable[Showing] = (),
) -> bytes:
    """Return exactly what *vm* could read at *at*, or say why that is not known.

    *pending* are showings that are not in the store yet.
    """
    _check_moment(reading, context, at)
    if api_version not in VERSIONS_BY_NAME:
        raise UnknownApiVersionError(api_version, VERSIONS_BY_NAME)
    moment = _as_recorded(reading, at, pending)
    document = reading.document_at(_scope_at(reading, vm, moment), moment)
    return encode_document(document, VERSIONS_BY_NAME[api_version])


def show_versions(reading: Reading, scope_id: ScopeId) -> Mapping[str, bytes]:
    """Return exactly what *scope_id* is shown, in each api-version."""
    document = reading.document(scope_id)
    return {name: encode_document(document, version) for name, version in VERSIONS_BY_NAME.items()}


def _as_recorded(reading: Reading, at: datetime, pending: Iterable[Showing]) -> datetime:
    """Return the moment of which the record is what was served at *at*.

    What was recorded just before *at* may have been shown only after it, all of it at once.
    """
    candidates = (reading.showing(at), *pending)
    for showing in candidates:
        if showing is not None and showing.recorded_at <= at < showing.shown_at:
            return showing.recorded_at - timedelta(microseconds=1)
    return at


def kept_since(context: Context) -> datetime:
    """Return the moment from which on documents are kept."""
    return context.now - context.rules.document_retention


def forget(
    tx: Transaction,
    *,
    documents: Iterable[DocumentKey] = (),
    memberships: Iterable[MembershipKey] = (),
    before: datetime,
) -> None:
    """Forget these, and that anybody could ask for a moment before *before*."""
    tx.remove_documents(documents)
    tx.remove_memberships(memberships)
    tx.put_setting(_FORGOTTEN_BEFORE, max(before, _forgotten_before(tx) or before).isoformat())


def _check_moment(reading: Reading, context: Context, at: datetime) -> None:
    if at > context.now:
        raise NotSeenError(f"{_say(at)} is in the future; it is now {_say(context.now)}.")
    # What was forgotten is gone, also when more is kept from now on.
    earliest = max(kept_since(context), _forgotten_before(reading) or kept_since(context))
    if at < earliest:
        raise NotSeenError(
            f"Documents from {_say(at)} are no longer kept; the earliest are from "
            f"{_say(earliest)} (document_retention).",
            earliest,
        )


def _forgotten_before(reading: Reading) -> datetime | None:
    text = reading.setting(_FORGOTTEN_BEFORE)
    return None if text is None else datetime.fromisoformat(text)


def _scope_at(reading: Reading, vm: str, at: datetime) -> ScopeId:
    known = reading.memberships(vm)
    if not known:
        raise UnknownVirtualMachineError(vm)
    until_then = [membership for membership in known if membership.since <= at]
    if not until_then:
        since = known[0].since
        problem = (
            f"The server does not know whether {vm} was in the fleet at {_say(at)}; its records "
            "start at"
        )
        raise NotSeenError(f"{problem} {_say(since)}.", since)
    current = until_then[-1]
    if current.scope_id is None:
        raise NotSeenError(
            f"{vm} was not in the fleet at {_say(at)}; it left the fleet at {_say(current.since)}."
        )
    return current.scope_id


def _say(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S} GMT"
