"""What is wrong, as a server finds it whose replicas are in order unless a test says otherwise."""

from datetime import UTC, datetime
from typing import Final

from tests.replicas import ITSELF

from forewarn.domain.finding import Finding, FindingVerdict
from forewarn.operations.context import Context
from forewarn.operations.findings import examine_server
from forewarn.ports.entries import Figures
from forewarn.ports.replicas import KnownReplica, RollCall
from forewarn.ports.store import Store

SEEN: Final = datetime(2026, 1, 5, 8, tzinfo=UTC)
LEADER: Final = KnownReplica(identity=ITSELF, started_at=SEEN, seen_at=SEEN, is_leader=True)


def find_all(
    store: Store,
    context: Context,
    *replicas: KnownReplica,
    has_all_scopes: bool = True,
    figures: Figures | None = None,
) -> tuple[Finding, ...]:
    """Return all findings of a server with *replicas*, or with one that leads."""
    roll = RollCall(at=SEEN, epoch=7, replicas=replicas or (LEADER,))
    counted = figures or store.figures()
    _, findings = store.read(
        lambda reading: examine_server(
            reading, context, roll, counted, has_all_scopes=has_all_scopes
        )
    )
    return findings


def find_problems(
    store: Store,
    context: Context,
    *replicas: KnownReplica,
    has_all_scopes: bool = True,
    figures: Figures | None = None,
) -> list[Finding]:
    """Return the findings that are not well."""
    found = find_all(store, context, *replicas, has_all_scopes=has_all_scopes, figures=figures)
    return [each for each in found if each.verdict is not FindingVerdict.OK]
