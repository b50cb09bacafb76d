"""Whatever executors say, operators do and leaders die of: the fleet is as was said last."""

import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.scheduler.moving import Moves, ended

from forewarn.domain.event import ScheduledEvent
from forewarn.domain.impact import ImpactStatus
from forewarn.domain.names import ScopeId
from forewarn.operations.events import complete_event
from forewarn.protocol.document import Document
from forewarn.storage.sqlite import open_sqlite

WEB = ScopeId("availability-set/web")
OVER = [ImpactStatus.DONE, ImpactStatus.FAILED]
HOSTS = ["kvm-1", "kvm-2", "kvm-3", "KVM-2", "new", None]


class MovesMachine(RuleBasedStateMachine):
    """Events on web-0 and web-1, of which each impact ends somewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        path = Path(self.folder.name) / "forewarn.db"
        self.moves = Moves(open_sqlite(path, is_durable=False))
        self.events: list[ScheduledEvent] = []
        self.expected: dict[str, str | None] = self.moves.hosts()
        self.document = self._document()

    def teardown(self) -> None:
        self.moves.store.close()
        self.folder.cleanup()

    def _document(self) -> Document:
        return self.moves.store.read(lambda reading: reading.document(WEB))

    def _running(self) -> list[tuple[ScheduledEvent, str]]:
        """Return what was begun and not ended, of events that are in flight."""
        outside = self.moves.outside
        return [
            (event, vm)
            for event in self.events
            if self.moves.event(event).is_in_flight
            for vm in event.resources
            if outside.begun[event.event_id, vm] and (event.event_id, vm) not in outside.says
        ]

    @rule(names=st.sampled_from([("web-0",), ("web-0", "web-1")]))
    def begin(self, names: tuple[str, ...]) -> None:
        if len(self.events) < 6:
            self.events.append(self.moves.begin(*names))

    @precondition(lambda self: bool(self._running()))
    @rule(
        data=st.data(),
        host=st.sampled_from(HOSTS),
        status=st.sampled_from(OVER),
        is_heard=st.booleans(),
        is_dead_then=st.booleans(),
    )
    def end(
        self,
        data: st.DataObject,
        host: str | None,
        status: ImpactStatus,
        *,
        is_heard: bool,
        is_dead_then: bool,
    ) -> None:
        """Have an impact end; its leader may die before it hears of that, or after."""
        event, vm = data.draw(st.sampled_from(self._running()))
        if host is not None:
            self.expected[vm] = host.lower()
        if not is_heard:
            self.moves.lead()
        self.moves.say(event, vm, ended(host, status))
        if is_dead_then:
            self.moves.lead()
            self.moves.settle()

    @precondition(lambda self: bool(self._running()))
    @rule(data=st.data())
    def complete_by_hand(self, data: st.DataObject) -> None:
        event, _ = data.draw(st.sampled_from(self._running()))
        self.moves.store.write(lambda tx: complete_event(tx, self.moves.context(), event.event_id))
        self.moves.settle()

    @invariant()
    def every_machine_is_where_was_said_last(self) -> None:
        assert self.moves.hosts() == self.expected

    @invariant()
    def impacts_begin_once(self) -> None:
        assert all(times <= 1 for times in self.moves.outside.begun.values())

    @invariant()
    def incarnation_rises_with_the_document_only(self) -> None:
        before, self.document = self.document, self._document()
        is_same = before.events == self.document.events
        rose = self.document.document_incarnation - before.document_incarnation
        assert rose == 0 if is_same else rose > 0


TestMoves = MovesMachine.TestCase
TestMoves.settings = settings(
    max_examples=settings().max_examples * 2 // 5,
    stateful_step_count=settings().stateful_step_count // 4,
)
