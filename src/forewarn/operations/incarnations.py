"""DocumentIncarnations when the fleet changes: no virtual machine ever reads a lower one.

Nor does it read the same one with other content, whether it moves to another scope or its scope was
removed and comes back. A machine that is new may be one that was here before. So the highest number
that any machine may have read before it left is remembered, and new ones begin above it.
"""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Final

from forewarn.domain.names import ScopeId, name_key
from forewarn.domain.publication import republish
from forewarn.domain.topology import Topology, VirtualMachine
from forewarn.operations.context import Context
from forewarn.ports.store import Reading, Transaction

_HIGHEST_LEFT: Final = "highest_incarnation_left"
_MANY: Final = 100
"""From this many scopes on, reading all documents is quicker than one at a time."""


def note_departures(tx: Transaction, before: Topology, after: Topology) -> None:
    """Remember what leaving machines may have read; call it before their scopes are removed."""
    left = {
        before.virtual_machines[name].scope_id
        for name in after.revision_of(before).gone.virtual_machines
        if name_key(name) not in after.directory.by_name
    }
    start_above(tx, max(_shown(tx, left).values(), default=0))


def start_above(tx: Transaction, incarnation: int) -> None:
    """Have machines that are new from now on read a higher number than *incarnation*."""
    if incarnation > _highest_left(tx):
        tx.put_setting(_HIGHEST_LEFT, str(incarnation))


def keep_incarnations_rising(
    tx: Transaction, context: Context, before: Topology, after: Topology
) -> None:
    """Raise the numbers of scopes that are back, and of scopes that machines join."""
    put = after.revision_of(before).put.scopes
    shown = _shown(tx, {scope_id for scope_id in put if scope_id not in before.scopes})
    above = {scope_id: incarnation for scope_id, incarnation in shown.items() if incarnation}
    moved, new = _find_joining(before, after)
    for scope_id, old_scope_ids in moved.items():
        highest = max(_shown(tx, old_scope_ids).values())
        above[scope_id] = max(above.get(scope_id, 0), highest)
    highest_left = _highest_left(tx)
    if highest_left:
        for scope_id, incarnation in _shown(tx, new).items():
            if incarnation <= highest_left:
                above[scope_id] = max(above.get(scope_id, 0), highest_left)
    for scope_id, incarnation in above.items():
        document = republish(tx.document(scope_id), above=incarnation)
        tx.put_document(scope_id, document, at=context.now)


def _find_joining(
    before: Topology, after: Topology
) -> tuple[Mapping[ScopeId, set[ScopeId]], set[ScopeId]]:
    """Return the scopes that known machines join, with those they left, and that new ones join."""
    moved: dict[ScopeId, set[ScopeId]] = {}
    new: set[ScopeId] = set()
    revision = after.revision_of(before)
    # One whose name is written in another case from now on is the same to those who poll.
    gone: dict[str, VirtualMachine] = {
        name_key(name): before.virtual_machines[name] for name in revision.gone.virtual_machines
    }
    for name in revision.put.virtual_machines:
        vm = after.virtual_machines[name]
        old = before.virtual_machines.get(name) or gone.get(name_key(name))
        if old is None:
            new.add(vm.scope_id)
        elif old.scope_id != vm.scope_id:
            moved.setdefault(vm.scope_id, set()).add(old.scope_id)
    return moved, new


def _shown(reading: Reading, scope_ids: AbstractSet[ScopeId]) -> dict[ScopeId, int]:
    """Return the last number that each of these scopes was shown."""
    if len(scope_ids) >= _MANY:
        known = reading.documents()
        here, elsewhere = scope_ids & known.keys(), scope_ids - known.keys()
        shown = {scope_id: known[scope_id].document_incarnation for scope_id in here}
        return shown | _shown_one_by_one(reading, elsewhere)
    return _shown_one_by_one(reading, scope_ids)


def _shown_one_by_one(reading: Reading, scope_ids: AbstractSet[ScopeId]) -> dict[ScopeId, int]:
    return {each: reading.document(each).document_incarnation for each in scope_ids}


def _highest_left(reading: Reading) -> int:
    return int(reading.setting(_HIGHEST_LEFT) or 0)
