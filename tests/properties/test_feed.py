"""Followers converge, whatever changes on the server and wherever connections break."""

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.feed.conftest import Center, Listening, machine
from tests.feed.relays import running_loop

from forewarn.domain.names import HostName
from forewarn.domain.topology import VirtualMachine, is_on
from forewarn.feed.frames import Mark
from forewarn.feed.mirror import Mirror
from forewarn.metadata.board import Board, Pages

HOSTS = ("kvm-1", "kvm-2")
MACHINES = st.builds(
    machine,
    st.sampled_from("abcdefABC"),
    st.sampled_from((None, *HOSTS)),
    scope=st.sampled_from(["", "red", "blue"]),
    address=st.sampled_from(["", "10.0.0.1", "10.0.0.2"]),
)
FLEETS = st.lists(
    MACHINES,
    max_size=6,
    unique_by=(lambda vm: vm.name.casefold(), lambda vm: vm.addresses or vm.name),
)
STEPS = st.lists(
    st.tuples(st.just("place"), FLEETS)
    | st.tuples(st.just("publish"), st.integers(0, 10))
    | st.tuples(st.just("read"), st.integers(0, 4))
    | st.tuples(st.just("break"), st.integers(0, 1)),
    max_size=12,
)


@dataclass
class Following:
    """One who follows the server, with a board of its own, on connections that break."""

    center: Center
    host: HostName
    token: str
    loop: asyncio.AbstractEventLoop
    board: Board = field(default_factory=Board)
    _stack: ExitStack = field(default_factory=ExitStack)
    _stream: Listening | None = None

    def __post_init__(self) -> None:
        self.mirror: Mirror[Pages] = Mirror(self.board, self.loop)

    def read(self) -> int:
        """Take one line in, and return the sequence if it is a mark."""
        if self._stream is None:
            self._stream = self._stack.enter_context(
                self.center.follow(self.token, self.mirror.place)
            )
            self.mirror.take(self._stream.hello)
        line = self._stream.line()
        self.mirror.take(line)
        return line.sequence if isinstance(line, Mark) else -1

    def hang_up(self) -> None:
        self._stack.close()
        self._stream = None

    def catch_up(self) -> None:
        sequence = self.center.hub._sequence  # noqa: SLF001
        while self.read() < sequence:
            pass

    def check(self) -> None:
        """Compare all that is shown here with what the server shows."""
        center = self.center.board
        expected = {
            vm.name: vm for vm in center.topology.virtual_machines.values() if is_on(vm, self.host)
        }
        vms, scopes = self.board.parts
        assert {vm.name: vm for vm in vms} == expected
        assert scopes.keys() == {vm.scope_id for vm in expected.values()}
        for vm in expected.values():
            self._check_machine(vm)

    def _check_machine(self, vm: VirtualMachine) -> None:
        center = self.center.board
        assert self.board.vm_named(vm.name.swapcase()) == center.vm_named(vm.name)
        assert self.board.vm_with_id(vm.vm_id) == center.vm_with_id(vm.vm_id)
        for address in vm.addresses:
            assert self.board.vm_at(address) == center.vm_at(address)
        page = center.page(vm, "2020-07-01")
        assert self.board.page(vm, "2020-07-01").body == page.body


@pytest.fixture(scope="module")
def center() -> Iterator[Center]:
    made = Center(most_remembered=6, beat=0.01)
    yield made
    made.close()


@pytest.fixture(scope="module")
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    with running_loop() as made:
        yield made


@pytest.fixture(scope="module")
def tokens(center: Center) -> dict[str, str]:
    return {host: center.relay_token(host) for host in HOSTS}


@settings(max_examples=60)
@given(steps=STEPS)
def test_board_of_a_follower_is_the_server_s_whatever_has_happened(
    center: Center,
    loop: asyncio.AbstractEventLoop,
    tokens: dict[str, str],
    steps: list[tuple[str, object]],
) -> None:
    everybody = [Following(center, HostName(host), token, loop) for host, token in tokens.items()]
    try:
        for what, how in steps:
            do(center, everybody, what, how)
        for each in everybody:
            each.catch_up()
            each.check()
    finally:
        for each in everybody:
            each.hang_up()


def do(center: Center, everybody: list[Following], what: str, how: object) -> None:
    match what, how:
        case "place", list(vms):
            center.place(*vms)
        case "publish", int(which):
            scopes = sorted(center.board.topology.scopes)
            if scopes:
                scope_id = scopes[which % len(scopes)]
                known = center.board.document_in(scope_id).document_incarnation
                center.publish(scope_id, known + 1)
        case "read", int(lines):
            for each in everybody:
                for _ in range(lines):
                    each.read()
        case "break", int(which):
            everybody[which].hang_up()
        case unknown:
            raise AssertionError(unknown)
