"""Lines of the feed: whoever reads one knows what was written, and what cannot be read is said."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forewarn.domain.names import HostName, ScopeId, VmName
from forewarn.domain.profile import PROFILE_KEYS, Profile
from forewarn.domain.topology import DeliveryScope, ScopeKind, VirtualMachine
from forewarn.feed.frames import (
    FeedLine,
    FeedLineError,
    Gone,
    Hello,
    Mark,
    Put,
    decode_line,
    encode_line,
    gone_lines,
    put_lines,
)
from forewarn.protocol.document import Document, Event
from forewarn.protocol.vocabulary import EventSource, EventStatus, EventType, event_id

TEXTS = st.text(max_size=8)
NAMES = TEXTS.map(VmName)
SCOPE_IDS = TEXTS.map(ScopeId)
EVENTS = st.builds(
    Event,
    event_id=st.uuids().map(str).map(event_id),
    event_status=st.just(EventStatus.STARTED),
    event_type=st.sampled_from(EventType),
    resources=st.lists(TEXTS, max_size=3).map(tuple),
    description=TEXTS,
    event_source=st.sampled_from(EventSource),
    duration_in_seconds=st.none() | st.integers(0, 10**9),
)
DOCUMENTS = st.builds(
    Document,
    document_incarnation=st.integers(0, 2**63),
    events=st.lists(EVENTS, max_size=2).map(tuple),
)
SCOPES = st.builds(
    DeliveryScope,
    kind=st.sampled_from(ScopeKind),
    name=TEXTS,
    placement_group=st.none() | TEXTS,
    update_domains=st.integers(1, 20),
    fault_domains=st.integers(1, 3),
)
MACHINES = st.builds(
    VirtualMachine,
    name=NAMES,
    scope_id=SCOPE_IDS,
    update_domain=st.integers(0, 20),
    host=st.none() | TEXTS.map(HostName),
    addresses=st.lists(st.ip_addresses().map(str), max_size=3).map(tuple),
    vm_id=TEXTS,
    zone=TEXTS,
    location=TEXTS,
    resource_group=TEXTS,
    subscription_id=TEXTS,
    tags=st.dictionaries(TEXTS, TEXTS, max_size=2),
    profile=st.builds(Profile, **dict.fromkeys(PROFILE_KEYS, TEXTS)),
)
LINES = (
    st.builds(
        Hello,
        feed=TEXTS,
        host=TEXTS.map(HostName),
        resumed=st.booleans(),
        heartbeat_seconds=st.floats(0.1, 60),
    )
    | st.builds(
        Put,
        documents=st.dictionaries(SCOPE_IDS, DOCUMENTS, max_size=2),
        scopes=st.dictionaries(SCOPE_IDS, SCOPES, max_size=2),
        virtual_machines=st.lists(MACHINES, max_size=2).map(tuple),
    )
    | st.builds(
        Gone,
        virtual_machines=st.lists(NAMES, max_size=2).map(tuple),
        scope_ids=st.lists(SCOPE_IDS, max_size=2).map(tuple),
    )
    | st.builds(Mark, sequence=st.integers(0, 2**53))
)


@given(line=LINES)
def test_decoding_a_line_gives_back_what_was_encoded(line: FeedLine) -> None:
    text = encode_line(line)

    assert text.endswith(b"\n")
    assert text.count(b"\n") == 1
    assert decode_line(text) == line


@given(line=LINES)
def test_members_that_are_not_known_are_ignored(line: FeedLine) -> None:
    content = json.loads(encode_line(line)) | {"more": 1}

    assert decode_line(json.dumps(content).encode()) == line


@pytest.mark.parametrize("text", [b'{"type":"new"}', b'{"type":"new","sequence":3}\n'])
def test_line_of_a_new_kind_says_nothing(text: bytes) -> None:
    assert decode_line(text) is None


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{}",
        b"[]",
        b"\xff",
        b'{"type":"mark"}',
        b'{"type":"mark","sequence":"x"}',
        b'{"type":"put","virtual_machines":[{}]}',
        b'{"type":"put","documents":{"a":{}}}',
        b'{"type":"put","documents":[]}',
        b'{"type":"hello","protocol":1}',
        b'{"type":"mark","sequence":1e999}',
        b'{"type":"gone","virtual_machines":[5]}',
        b'{"type":"gone","scopes":[[]]}',
    ],
)
def test_line_that_cannot_be_read_is_said_to_be_one(text: bytes) -> None:
    with pytest.raises(FeedLineError, match="invalid line"):
        decode_line(text)


@pytest.mark.parametrize(
    "member",
    [
        {"heartbeat_seconds": -1},
        {"heartbeat_seconds": 0},
        {"heartbeat_seconds": float("inf")},
        {"heartbeat_seconds": float("nan")},
        {"heartbeat_seconds": 1e300},
        {"feed": 5},
        {"host": 5},
        {"host": None},
    ],
)
def test_hello_that_nobody_could_go_on_with_cannot_be_read(member: dict[str, object]) -> None:
    hello = json.loads(encode_line(Hello(feed="x", host=HostName("kvm-1"), heartbeat_seconds=5)))

    with pytest.raises(FeedLineError, match="invalid line"):
        decode_line(json.dumps(hello | member).encode())


@pytest.mark.parametrize(
    "member",
    [
        {"name": 5},
        {"vm_id": 5},
        {"addresses": [5]},
        {"addresses": [[]]},
        {"addresses": ["::zz"]},
        {"tags": [1]},
        {"tags": {"a": float("nan")}},
        {"update_domain": float("nan")},
        {"fault_domain": "0"},
        {"profile": {"mac_address": 5}},
    ],
)
def test_machine_that_no_board_could_show_cannot_be_read(member: dict[str, object]) -> None:
    vm = VirtualMachine(name=VmName("a"), scope_id=ScopeId("s"))
    line = json.loads(encode_line(Put(virtual_machines=(vm,))))
    line["virtual_machines"][0] |= member

    with pytest.raises(FeedLineError, match="invalid line"):
        decode_line(json.dumps(line).encode())


@pytest.mark.parametrize(
    "member",
    [{"name": 5}, {"placement_group": 5}, {"update_domains": float("nan")}, {"fault_domains": "2"}],
)
def test_scope_that_no_board_could_show_cannot_be_read(member: dict[str, object]) -> None:
    scope = DeliveryScope(kind=ScopeKind.SCALE_SET, name="a", placement_group="pg")
    line = json.loads(encode_line(Put(scopes={ScopeId("s"): scope})))
    line["scopes"][0] |= member

    with pytest.raises(FeedLineError, match="invalid line"):
        decode_line(json.dumps(line).encode())


def test_feed_of_another_version_is_refused_with_what_to_do() -> None:
    hello = json.loads(encode_line(Hello(feed="x", host=HostName("kvm-1"), heartbeat_seconds=5)))

    with pytest.raises(FeedLineError, match="Upgrade both to the same release"):
        decode_line(json.dumps(hello | {"protocol": 2}).encode())


def test_what_many_machines_have_in_common_is_kept_once() -> None:
    vm = VirtualMachine(
        name=VmName("a"), scope_id=ScopeId("s"), host=HostName("kvm-1"), location="cellar"
    )
    line = Put(documents={ScopeId("s"): Document(document_incarnation=7)}, virtual_machines=(vm,))
    texts = [encode_line(line), encode_line(replace(line, virtual_machines=(vm, vm)))]

    one, two = (decode_line(text) for text in texts)

    assert isinstance(one, Put)
    assert isinstance(two, Put)
    first, second = one.virtual_machines[0], two.virtual_machines[1]
    for name in ("scope_id", "host", "location", "tags", "labels", "profile"):
        assert getattr(first, name) is getattr(second, name), name
    assert one.documents[vm.scope_id] is two.documents[vm.scope_id]


@pytest.mark.parametrize("number", [0, 1, 50, 51, 100, 101, 250])
def test_no_line_has_more_than_a_hundred_things(number: int) -> None:
    vms = [VirtualMachine(name=VmName(f"m-{n}"), scope_id=ScopeId(f"s-{n}")) for n in range(number)]
    scope = DeliveryScope(kind=ScopeKind.AVAILABILITY_SET, name="x")
    document = Document(document_incarnation=1)

    put = [*put_lines([(vm.scope_id, scope) for vm in vms], lambda _: document, vms)]
    gone = [*gone_lines([vm.name for vm in vms], [vm.scope_id for vm in vms])]

    sizes = [len(x.documents) + len(x.scopes) + len(x.virtual_machines) for x in put]
    assert max(sizes, default=0) <= 100
    assert sum(sizes) == 3 * number
    assert max((len(x.virtual_machines) + len(x.scope_ids) for x in gone), default=0) <= 100
    is_of_machines = [bool(line.virtual_machines) for line in put]
    assert is_of_machines == sorted(is_of_machines), "documents come first"
