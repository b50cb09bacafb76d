"""Every method of the store has a rule for limited tokens, and nobody gets around these rules."""

import ast
from pathlib import Path

import pytest

import forewarn
from forewarn.desk.scope_limit import LimitedReading, LimitedTransaction
from forewarn.domain.access import Principal, RoleTooLowError
from forewarn.domain.names import ScopeId
from forewarn.domain.roles import Role
from forewarn.ports.store import Reading, Transaction

PACKAGE = Path(forewarn.__file__).parent

RULES = {
    # It is about no scope, or for all together.
    "whole": """
        append_audit gate_answers kept_answer last_sequence lease_epoch owners put_answer
        setting showing user_operations_in_flight
        """,
    # What is in the scopes is returned.
    "part": """
        documents event events_in_flight events_of events_under_way host_operation last_polls
        maintenance memberships notification open_tasks operation_events operations_of
        operations_under_way scenario_run schedules soaks tasks topology
        """,
    "page": "maintenances scenario_runs",
    # Nothing else is asked for.
    "narrowed": "events notifications",
    # The scope or event that it is about has to be theirs.
    "only": """
        append_ledger document document_at last_polled_at ledger put_document put_notification
        put_soak
        """,
    # Everything that it affects has to be in the scopes.
    "inside": "put_event put_maintenance put_operation put_task",
    # The admin's.
    "refused": """
        audit check_epoch count_links ledger_after next_epoch next_notifications old_history
        prepare_topology prune_answers prune_history prune_notifications prune_sessions
        prune_showings prune_tasks put_gate_answers put_memberships put_owner put_polled_at
        put_polls put_scenario_run put_schedule put_session put_setting put_showings
        put_token put_told put_topology remove_documents remove_memberships
        remove_owner remove_schedule remove_session session settled_tasks superseded_documents
        superseded_memberships targets_waited_for task tasks_of token tokens told
        topology_at_hand
        """,
}

UNLIMITED = {
    ("control/health.py", "store"): "asks whether it can be written",
    ("control/host_offers.py", "store"): "has the offers of one host, that of a relay's token",
    ("desk/caller.py", "store"): "limits each reading and transaction",
    ("desk/caller.py", "ledger_watch"): "limits each line",
    ("desk/explanations.py", "store"): "looks at everything, and limits what is said of it",
    ("desk/refusals.py", "store"): "only adds to the audit",
    ("desk/server.py", "store"): "counts what waits, as metrics do for every token",
    ("desk/sessions.py", "store"): "signs in whoever has a token, with that token",
}
"""Who has the store or the ledger watch without a limit, and why."""


def rule_of(name: str) -> str:
    made_by = getattr(LimitedTransaction, name).__qualname__.partition(".")[0]
    return "part" if made_by == LimitedReading.__name__ else made_by.removeprefix("_")


@pytest.mark.parametrize("port", [Reading, Transaction])
def test_every_method_of_the_store_has_a_rule_for_limited_tokens(port: type) -> None:
    methods = {name for name in dir(port) if not name.startswith("_")}
    expected = {name: rule for rule, names in RULES.items() for name in names.split()}

    assert {name: rule_of(name) for name in methods} == {
        name: rule for name, rule in expected.items() if name in methods
    }
    assert methods <= expected.keys()


def test_what_is_the_admins_is_refused_whatever_is_asked() -> None:
    web = Principal(name="web", role=Role.OPERATOR, scopes=(ScopeId("availability-set/web"),))
    nothing: Transaction = object()  # type: ignore[assignment]
    limited = LimitedTransaction(nothing, web)

    for name in RULES["refused"].split():
        with pytest.raises(RoleTooLowError, match="admin"):
            getattr(limited, name)("anything", of="anybody")


def test_nothing_that_operators_use_gets_around_the_limit() -> None:
    found = {
        (path.relative_to(PACKAGE).as_posix(), node.attr)
        for folder in ("control", "desk")
        for path in (PACKAGE / folder).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and node.attr in {"store", "ledger_watch"}
    }

    assert found == UNLIMITED.keys()
