"""The lines of the feed: one JSON object each (docs/reference/feed.md).

A line says what is, never what differs from something, so that it may be heard twice. Whoever reads
ignores lines and members that it does not know: a newer server may send some. Strings that many
virtual machines have in common are kept once, because a relay may hold many of them.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from sys import intern
from typing import Any, Final, TypeAlias, TypeVar

from forewarn.domain.names import HostName, ScopeId, VmName
from forewarn.domain.policy import Policy
from forewarn.domain.profile import NO_PROFILE, PROFILE_KEYS, Profile
from forewarn.domain.topology import (
    DeliveryScope,
    ScopeKind,
    VirtualMachine,
    normalise_address,
)
from forewarn.protocol.document import Document, read_document, write_document
from forewarn.protocol.errors import ForewarnError, ProtocolError
from forewarn.protocol.versions import NEWEST

T = TypeVar("T")

PROTOCOL: Final = 1
MOST_IN_A_LINE: Final = 10
"""How many things a line has at most.

Whoever reads one holds up the polls of its process: for half a millisecond where it has a hundred,
which was five times what a poll takes.
"""
LONGEST_HEARTBEAT: Final = 3600.0
_SHARED_TEXTS: Final = ("zone", "location", "resource_group", "subscription_id")
_NO_TAGS: Final[Mapping[str, str]] = {}
_NO_POLICY: Final = Policy()
"""What a scope lets happen is decided on the server; a relay does not know it."""


class FeedLineError(ForewarnError):
    """A line that is not one of the feed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """The first line. Unless the feed was *resumed*, all that there is follows.

    *host* is the one whose virtual machines are told.
    """

    feed: str
    host: HostName
    resumed: bool = False
    heartbeat_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Put:
    """What there is now."""

    documents: Mapping[ScopeId, Document] = field(default_factory=dict)
    scopes: Mapping[ScopeId, DeliveryScope] = field(default_factory=dict)
    virtual_machines: tuple[VirtualMachine, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Gone:
    """What there is no more."""

    virtual_machines: tuple[VmName, ...] = ()
    scope_ids: tuple[ScopeId, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """Everything up to *sequence* has been told."""

    sequence: int


FeedLine: TypeAlias = Hello | Put | Gone | Mark


def encode_line(line: FeedLine) -> bytes:
    """Return *line* as it is sent, with its end."""
    return json.dumps(_write(line), separators=(",", ":")).encode("ascii") + b"\n"


def decode_line(text: bytes) -> FeedLine | None:
    """Return what *text* says; None if it is of a kind that this release does not know."""
    try:
        content: Any = json.loads(text)
        return _READERS[content["type"]](content) if content["type"] in _READERS else None
    except (
        ProtocolError,
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        RecursionError,
        OverflowError,
    ) as error:
        raise FeedLineError(f"The feed contains an invalid line: {error!r}.") from error


def put_lines(
    scopes: Iterable[tuple[ScopeId, DeliveryScope]],
    document_in: Callable[[ScopeId], Document],
    virtual_machines: Iterable[VirtualMachine],
) -> Iterator[Put]:
    """Yield lines of all these, each of a bearable length, documents before machines."""
    for some in batches(scopes, MOST_IN_A_LINE // 2):
        documents = {scope_id: document_in(scope_id) for scope_id, _ in some}
        yield Put(documents=documents, scopes=dict(some))
    for vms in batches(virtual_machines, MOST_IN_A_LINE):
        yield Put(virtual_machines=vms)


def gone_lines(names: Iterable[VmName], scope_ids: Iterable[ScopeId]) -> Iterator[Gone]:
    """Yield lines that say that these are gone, each of a bearable length."""
    for some in batches(names, MOST_IN_A_LINE):
        yield Gone(virtual_machines=some)
    for ids in batches(scope_ids, MOST_IN_A_LINE):
        yield Gone(scope_ids=ids)


def batches(things: Iterable[T], most: int) -> Iterator[tuple[T, ...]]:
    """Yield *things* in their order, so many at once at most."""
    left = iter(things)
    while some := tuple(islice(left, most)):
        yield some


def _write(line: FeedLine) -> dict[str, object]:
    match line:
        case Hello():
            return {
                "type": "hello",
                "protocol": PROTOCOL,
                "feed": line.feed,
                "host": line.host,
                "resumed": line.resumed,
                "heartbeat_seconds": line.heartbeat_seconds,
            }
        case Put():
            return {
                "type": "put",
                "documents": {
                    scope_id: write_document(document, NEWEST)
                    for scope_id, document in line.documents.items()
                },
                "scopes": [_write_scope(*each) for each in line.scopes.items()],
                "virtual_machines": [_write_vm(vm) for vm in line.virtual_machines],
            }
        case Gone():
            return {
                "type": "gone",
                "virtual_machines": line.virtual_machines,
                "scopes": line.scope_ids,
            }
        case Mark():
            return {"type": "mark", "sequence": line.sequence}


def _write_scope(scope_id: ScopeId, scope: DeliveryScope) -> dict[str, object]:
    return {
        "scope_id": scope_id,
        "kind": scope.kind,
        "name": scope.name,
        "placement_group": scope.placement_group,
        "update_domains": scope.update_domains,
        "fault_domains": scope.fault_domains,
    }


def _write_vm(vm: VirtualMachine) -> dict[str, object]:
    """Return what *vm* may read of itself, and is known by; labels are for operators only."""
    known: dict[str, object] = {
        "name": vm.name,
        "scope_id": vm.scope_id,
        "update_domain": vm.update_domain,
        "fault_domain": vm.fault_domain,
        "host": vm.host,
        "addresses": vm.addresses,
        "vm_id": vm.vm_id,
    }
    known |= {name: text for name in _SHARED_TEXTS if (text := getattr(vm, name))}
    if vm.tags:
        known["tags"] = dict(vm.tags)
    if vm.profile is not NO_PROFILE and vm.profile.known:
        known["profile"] = vm.profile.known
    return known


def _read_hello(content: Mapping[str, Any]) -> Hello:
    if content["protocol"] != PROTOCOL:
        raise FeedLineError(
            f"The server uses version {content['protocol']} of the feed, but this release uses "
            f"version {PROTOCOL}. Upgrade both to the same release."
        )
    heartbeat = float(content["heartbeat_seconds"])
    if not 0 < heartbeat <= LONGEST_HEARTBEAT:
        raise ValueError(heartbeat)
    return Hello(
        feed=_text(content["feed"]),
        host=HostName(_text(content["host"])),
        resumed=bool(content["resumed"]),
        heartbeat_seconds=heartbeat,
    )


def _read_put(content: Mapping[str, Any]) -> Put:
    return Put(
        documents={
            ScopeId(intern(scope_id)): _read_document(document)
            for scope_id, document in content.get("documents", {}).items()
        },
        scopes=dict(_read_scope(scope) for scope in content.get("scopes", ())),
        virtual_machines=tuple(_read_vm(vm) for vm in content.get("virtual_machines", ())),
    )


def _read_gone(content: Mapping[str, Any]) -> Gone:
    return Gone(
        virtual_machines=tuple(map(_text, content.get("virtual_machines", ()))),
        scope_ids=tuple(map(_text, content.get("scopes", ()))),
    )


def _read_document(content: Mapping[str, Any]) -> Document:
    document = read_document(content)
    return document if document.events else _empty_document(document.document_incarnation)


@lru_cache(maxsize=1024)
def _empty_document(document_incarnation: int) -> Document:
    return Document(document_incarnation=document_incarnation)


def _read_scope(content: Mapping[str, Any]) -> tuple[ScopeId, DeliveryScope]:
    group = content["placement_group"]
    return ScopeId(intern(content["scope_id"])), DeliveryScope(
        kind=ScopeKind(content["kind"]),
        name=_text(content["name"]),
        placement_group=None if group is None else _text(group),
        update_domains=_number(content["update_domains"]),
        fault_domains=_number(content["fault_domains"]),
        policy=_NO_POLICY,
    )


def _read_vm(content: Mapping[str, Any]) -> VirtualMachine:
    host, profile = content["host"], content.get("profile")
    shared = {name: intern(content.get(name, "")) for name in _SHARED_TEXTS}
    return VirtualMachine(
        name=VmName(_text(content["name"])),
        scope_id=ScopeId(intern(content["scope_id"])),
        update_domain=_number(content["update_domain"]),
        fault_domain=_number(content["fault_domain"]),
        host=None if host is None else HostName(intern(host)),
        addresses=tuple(map(_address, content["addresses"])),
        vm_id=_text(content["vm_id"]),
        tags=_read_texts(content["tags"]) if content.get("tags") else _NO_TAGS,
        labels=_NO_TAGS,
        profile=_read_profile(profile) if profile else NO_PROFILE,
        **shared,
    )


def _text(value: Any) -> Any:
    """Return *value*, which is a string; whoever finds something else later could not go on."""
    if not isinstance(value, str):
        raise TypeError(value)
    return value


def _number(value: Any) -> int:
    if type(value) is not int:
        raise TypeError(value)
    return value


def _read_texts(content: Mapping[str, Any]) -> dict[str, str]:
    return {key: _text(value) for key, value in content.items()}


def _address(value: Any) -> Any:
    normalise_address(_text(value))
    return value


def _read_profile(content: Mapping[str, Any]) -> Profile:
    return Profile(**_read_texts({key: content[key] for key in PROFILE_KEYS if key in content}))


def _read_mark(content: Mapping[str, Any]) -> Mark:
    return Mark(sequence=int(content["sequence"]))


_READERS: Final[Mapping[str, Callable[[Mapping[str, Any]], FeedLine]]] = {
    "hello": _read_hello,
    "put": _read_put,
    "gone": _read_gone,
    "mark": _read_mark,
}
