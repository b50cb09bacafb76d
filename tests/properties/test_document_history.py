"""Documents that are published, looked back at and forgotten, in any order."""

import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from forewarn.domain.names import ScopeId, VmName
from forewarn.domain.publication import FIRST_DOCUMENT, republish
from forewarn.operations.context import Context, Rules
from forewarn.operations.seen import kept_since, see
from forewarn.ports.entries import Membership
from forewarn.ports.store import Store
from forewarn.protocol.document import Document, encode_document
from forewarn.protocol.versions import NEWEST
from forewarn.protocol.vocabulary import event_id
from forewarn.scheduler.upkeep import Upkeep
from forewarn.storage.sqlite import open_sqlite

BEGAN = datetime(2026, 1, 5, 8, tzinfo=UTC)
KEPT = timedelta(minutes=30)
SCOPES = (ScopeId("virtual-machine/a"), ScopeId("virtual-machine/b"))


class History(RuleBasedStateMachine):
    @initialize()
    def prepare(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.store: Store = open_sqlite(Path(self.folder.name) / "forewarn.db", is_durable=False)
        self.now = BEGAN
        self.shown: dict[ScopeId, list[tuple[datetime, Document]]] = {
            scope_id: [(BEGAN, FIRST_DOCUMENT)] for scope_id in SCOPES
        }
        members = [
            Membership(vm=VmName(scope_id[-1]), since=BEGAN, scope_id=scope_id)
            for scope_id in SCOPES
        ]
        self.store.write(lambda tx: tx.put_memberships(members))

    @rule(minutes=st.integers(0, 40))
    def time_passes(self, minutes: int) -> None:
        self.now += timedelta(minutes=minutes)

    @rule(scope_id=st.sampled_from(SCOPES), above=st.integers(0, 3))
    def document_is_published(self, scope_id: ScopeId, above: int) -> None:
        known = self.shown[scope_id][-1][1]
        document = republish(known, above=known.document_incarnation + above)
        self.store.write(lambda tx: tx.put_document(scope_id, document, at=self.now))
        self.shown[scope_id].append((self.now, document))

    @rule()
    def upkeep_forgets(self) -> None:
        Upkeep(self.store, self.context, epoch=0).tidy_up()

        before = kept_since(self.context())
        left = self.store.read(lambda reading: reading.superseded_documents(before, limit=1))
        assert left == ()

    @rule(scope_id=st.sampled_from(SCOPES), part=st.floats(0, 1))
    def somebody_looks_back(self, scope_id: ScopeId, part: float) -> None:
        earliest = max(BEGAN, kept_since(self.context()))
        at = earliest + (self.now - earliest) * part
        expected = [document for since, document in self.shown[scope_id] if since <= at][-1]

        body = self.store.read(
            lambda reading: see(reading, self.context(), scope_id[-1], at, NEWEST.name)
        )

        assert body == encode_document(expected, NEWEST)

    @invariant()
    def current_document_survives_and_no_incarnation_comes_again(self) -> None:
        if hasattr(self, "store"):
            current = self.store.read(lambda reading: [reading.document(each) for each in SCOPES])
            assert current == [self.shown[scope_id][-1][1] for scope_id in SCOPES]

    def context(self) -> Context:
        rules = Rules(document_retention=KEPT)
        return Context(
            who="x", now=self.now, at=self.now, new_id=lambda: event_id("X"), rules=rules
        )

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.close()
            self.folder.cleanup()


TestHistory = History.TestCase
TestHistory.settings = settings(max_examples=30, stateful_step_count=20)
