"""What was seen is what was served, whatever became of a virtual machine's name and place.

The history is made by the operations on a real store, and what polls are served is read from the
board after each of them; then every moment of it is looked back at.
"""

import tempfile
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from forewarn.domain.errors import UnknownVirtualMachineError
from forewarn.domain.names import VmName
from forewarn.files.fleet import read_fleet
from forewarn.metadata.board import Board
from forewarn.metadata.store_feed import StoreFeed
from forewarn.operations.context import Context
from forewarn.operations.events import EventOrder, cancel_event, create_events
from forewarn.operations.inventory import apply_fleet, remove_vm
from forewarn.operations.safeguards import ApplyOptions
from forewarn.operations.seen import NotSeenError, see
from forewarn.ports.store import Store, Transaction
from forewarn.protocol.errors import ForewarnError
from forewarn.protocol.versions import NEWEST
from forewarn.protocol.vocabulary import EventType, event_id
from forewarn.storage.sqlite import open_sqlite

BEGAN = datetime(2026, 1, 5, 8, tzinfo=UTC)
SETS = ("blue", "green")
NAMES = ("a", "b")
PLACES = st.sampled_from([None, *SETS])
SPELLINGS = st.sampled_from([str.lower, str.upper])
PASSING = st.sampled_from([timedelta(0), timedelta(microseconds=1), timedelta(seconds=1)])

PRUNING = ApplyOptions(prune=True, allow_removals=len(NAMES))

Served = bytes | None


class Moving(RuleBasedStateMachine):
    @initialize()
    def prepare(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.store: Store = open_sqlite(Path(self.folder.name) / "forewarn.db", is_durable=False)
        self.board = Board()
        StoreFeed(self.board, self.store).begin()
        self.numbers = count(1)
        self.now = BEGAN
        self.places: dict[str, tuple[str, str | None]] = {name: (name, None) for name in NAMES}
        self.served: dict[str, dict[datetime, Served]] = {name: {} for name in NAMES}
        self.read: dict[str, list[bytes]] = {name: [] for name in NAMES}
        self.apply()

    @rule(span=PASSING)
    def time_passes(self, span: timedelta) -> None:
        self.now += span

    @rule(name=st.sampled_from(NAMES), place=PLACES, spell=SPELLINGS)
    def it_is_somewhere_else_or_called_otherwise(
        self, name: str, place: str | None, spell: Callable[[str], str]
    ) -> None:
        known = dict(self.places)
        self.places[name] = (spell(name), place)
        if not self.apply():
            self.places = known

    @rule(name=st.sampled_from(NAMES))
    def it_leaves(self, name: str) -> None:
        if name in self.places and self.attempt(
            lambda tx, context: remove_vm(tx, context, name.upper())
        ):
            del self.places[name]

    @rule(name=st.sampled_from(NAMES))
    def an_event_is_announced(self, name: str) -> None:
        order = EventOrder(event_type=EventType.REBOOT, resources=(name,))
        self.attempt(lambda tx, context: create_events(tx, context, order))

    @rule()
    def the_first_event_is_canceled(self) -> None:
        events = self.store.read(lambda reading: reading.events_in_flight())
        if events:
            self.attempt(lambda tx, context: cancel_event(tx, context, events[0].event_id))

    @invariant()
    def what_was_seen_is_what_was_served(self) -> None:
        for name in getattr(self, "served", {}):
            for at, body in self.served[name].items():
                assert self.look_back(name, at) == body, f"{name} at {at}"

    @invariant()
    def numbers_never_come_again_for_other_content(self) -> None:
        for name, bodies in getattr(self, "read", {}).items():
            numbers = [int(body.split(b",")[0].split(b":")[1]) for body in bodies]
            assert numbers == sorted(set(numbers)), f"{name} read {bodies}"

    def apply(self) -> bool:
        fleet = read_fleet(
            {
                "availability_set": [{"name": each} for each in SETS],
                "virtual_machine": [
                    {"name": name} | ({"availability_set": place} if place else {})
                    for name, place in self.places.values()
                ],
            }
        )
        return self.attempt(lambda tx, context: apply_fleet(tx, context, fleet, options=PRUNING))

    def attempt(self, operation: Callable[[Transaction, Context], object]) -> bool:
        """Do it, unless it is refused, and write down what everybody is served then."""
        try:
            self.store.write(lambda tx: operation(tx, self.context()))
        except ForewarnError:
            return False
        for name in NAMES:
            vm = self.board.vm_named(VmName(name))
            body = None if vm is None else self.board.page(vm, NEWEST.name).body
            self.served[name][self.now] = body
            if body is not None and self.read[name][-1:] != [body]:
                self.read[name].append(body)
        return True

    def look_back(self, name: str, at: datetime) -> Served:
        try:
            return self.store.read(
                lambda reading: see(reading, self.context(), name, at, NEWEST.name)
            )
        except (NotSeenError, UnknownVirtualMachineError):
            return None

    def context(self) -> Context:
        return Context(
            who="x",
            now=self.now,
            at=self.now,
            new_id=lambda: event_id(f"00000000-0000-4000-8000-{next(self.numbers):012x}"),
        )

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.close()
            self.folder.cleanup()


TestMoving = Moving.TestCase
TestMoving.settings = settings(max_examples=30, stateful_step_count=20)
