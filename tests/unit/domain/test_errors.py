import inspect
import re
from datetime import UTC, datetime, timedelta
from types import ModuleType

import pytest

from forewarn.domain import access, errors
from forewarn.domain.access import (
    OutsideScopesError,
    RoleTooLowError,
    SignedInAsAnotherError,
    SignInLinkError,
    SignInLinksError,
    SignInTokenError,
    TokenExpiredError,
    TokenNameTakenError,
    TokenOrderError,
    TokenRevokedError,
    UnknownTokenError,
)
from forewarn.domain.errors import (
    AddressError,
    BlackoutError,
    CapacityError,
    DomainError,
    DomainOutOfRangeError,
    EmptySelectionError,
    IllegalTransitionError,
    InvalidNameError,
    MaintenanceOverError,
    NameTakenError,
    NoticeTooShortError,
    PostponeRefusedError,
    RoleNameError,
    ScenarioOverError,
    ScopeSettingError,
    SharedHostError,
    UnknownCanaryError,
    UnknownEventError,
    UnknownHostError,
    UnknownScopeError,
    UnknownVirtualMachineError,
    UnknownZoneError,
    UserOperationInFlightError,
    UserOperationLimitError,
    WindowError,
    WindowTooShortError,
)
from forewarn.protocol.errors import ForewarnError
from forewarn.protocol.vocabulary import EventId, EventStatus

NOON = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)
QUARTER_PAST = datetime(2026, 3, 2, 12, 15, tzinfo=UTC)
E1, E2 = EventId("E1"), EventId("E2")

REFUSALS: list[tuple[DomainError, dict[str, object], list[str]]] = [
    (
        InvalidNameError("host", "a b"),
        {"noun": "host", "name": "a b"},
        ["'a b'", "host", "letters, digits"],
    ),
    (
        NameTakenError("availability set", "Web"),
        {"noun": "availability set", "name": "Web"},
        ["availability set", "'Web'", "not case-sensitive"],
    ),
    (
        AddressError("10.0.0.1", "web-1", "already belongs to web-0"),
        {"address": "10.0.0.1", "vm": "web-1"},
        ["'10.0.0.1'", "web-1", "already belongs to web-0"],
    ),
    (
        UnknownScopeError("web-0", "availability-set/web"),
        {"vm": "web-0", "scope": "availability-set/web"},
        ["web-0", "availability-set/web", "not declared"],
    ),
    (RoleNameError("web-0"), {"vm": "web-0"}, ["web-0", "FrontEnd_IN_0"]),
    (
        DomainOutOfRangeError("web-0", "update domain", 5, 5),
        {"vm": "web-0", "number": 5, "domains": 5},
        ["web-0", "update domain 5", "0 to 4"],
    ),
    (
        ScopeSettingError("scale-set/batch", "terminate_notice", "between 5 and 15 minutes"),
        {"scope": "scale-set/batch", "setting": "terminate_notice"},
        ["terminate_notice", "scale-set/batch", "between 5 and 15 minutes"],
    ),
    (UnknownVirtualMachineError("web-9"), {"vm": "web-9"}, ["'web-9'"]),
    (UnknownHostError("kvm-9"), {"host": "kvm-9"}, ["'kvm-9'"]),
    (UnknownEventError(E1), {"event_id": E1}, ["E1"]),
    (
        IllegalTransitionError(E1, EventStatus.STARTED, "cancel"),
        {"event_id": E1, "event_status": EventStatus.STARTED, "trigger": "cancel"},
        ["E1", "Started", "cancel"],
    ),
    (
        NoticeTooShortError("Reboot", NOON, QUARTER_PAST),
        {"event_type": "Reboot", "not_before": NOON, "earliest": QUARTER_PAST},
        ["Reboot", "2026-03-02 12:00:00 GMT", "the earliest is 2026-03-02 12:15:00 GMT"],
    ),
    (
        PostponeRefusedError(E1, "it is already approved"),
        {"event_id": E1, "problem": "it is already approved"},
        ["E1", "it is already approved"],
    ),
    (
        UserOperationInFlightError("web-0", (E1, E2)),
        {"vm": "web-0", "in_flight": (E1, E2)},
        ["web-0", "E1, E2"],
    ),
    (
        UserOperationLimitError(2, [E1, E2]),
        {"limit": 2, "in_flight": (E1, E2)},
        ["2 user operations", "the limit is 2", "E1, E2"],
    ),
    (MaintenanceOverError("m1"), {"maintenance_id": "m1"}, ["Maintenance m1 has ended"]),
    (ScenarioOverError("r1"), {"run_id": "r1"}, ["Scenario run r1 has already ended"]),
    (EmptySelectionError(), {}, ["no virtual machine"]),
    (
        CapacityError(
            "availability-set/web", 2, "6 of 9 would stay available, but the minimum is 7"
        ),
        {"scope": "availability-set/web", "update_domain": 2},
        ["Update domain 2 of availability-set/web", "6 of 9", "`min_available`"],
    ),
    (
        WindowTooShortError(
            "availability-set/web",
            notice=timedelta(minutes=15),
            impact=timedelta(seconds=90),
            longest=timedelta(minutes=10),
            windows=["Sat 22:00-22:10 UTC"],
        ),
        {"scope": "availability-set/web", "windows": ("Sat 22:00-22:10 UTC",)},
        [
            "availability-set/web",
            "990 s (15 min notice and 90 s impact)",
            "open for at most 10 min",
        ],
    ),
    (UnknownCanaryError("web"), {"canary": "web"}, ["'web' is not among"]),
    (
        SharedHostError("kvm-1", "availability-set/web", ("web-0", "web-1")),
        {"host": "kvm-1", "scope": "availability-set/web", "vms": ("web-0", "web-1")},
        ["kvm-1", "availability-set/web", "web-0, web-1"],
    ),
    (
        TokenExpiredError("ada", NOON),
        {"name": "ada"},
        ["ada", "expired", "2026-03-02 12:00:00 GMT"],
    ),
    (
        TokenRevokedError("ada", NOON),
        {"name": "ada"},
        ["ada", "revoked", "2026-03-02 12:00:00 GMT"],
    ),
    (SignInTokenError(), {}, ["Unknown token", "ask an admin for a new one"]),
    (SignInLinkError(), {}, ["expired or was already used", "ask for a new one"]),
    (
        SignInLinksError("ada", 10),
        {"name": "ada", "limit": 10},
        ["ada already has 10 unused sign-in links", "Use one of them"],
    ),
    (
        SignedInAsAnotherError("alice", "bob"),
        {"name": "alice", "other": "bob"},
        ["signed in as alice", "for bob", "Sign out"],
    ),
    (
        RoleTooLowError("ada", "viewer", "operator"),
        {"name": "ada", "role": "viewer", "needed": "operator"},
        ["needs the role operator", "ada has the role viewer"],
    ),
    (
        OutsideScopesError("ada", ["db-0", "db-1"]),
        {"name": "ada", "vms": ("db-0", "db-1")},
        ["db-0, db-1", "ada"],
    ),
    (UnknownTokenError("ada"), {"name": "ada"}, ["no active token called 'ada'"]),
    (TokenNameTakenError("ada"), {"name": "ada"}, ["'ada' already", "revoke"]),
    (
        WindowError("Sun", "expected DAYS HH:MM-HH:MM ZONE"),
        {"text": "Sun"},
        ["'Sun'", "expected DAYS", "Sat,Sun 22:00-06:00 Europe/Berlin"],
    ),
    (
        BlackoutError("Xmas", "it is not a valid date"),
        {"text": "Xmas"},
        ["'Xmas'", "it is not a valid date", "2026-12-31 UTC"],
    ),
    (UnknownZoneError("Mars"), {"zone": "Mars"}, ["'Mars'", "Europe/Berlin"]),
    (TokenOrderError("It cannot be."), {}, ["It cannot be."]),
]


@pytest.mark.parametrize(
    ("error", "data", "words"), REFUSALS, ids=lambda value: type(value).__name__
)
def test_refusal_says_in_a_sentence_what_was_refused(
    error: DomainError, data: dict[str, object], words: list[str]
) -> None:
    sentence = str(error)

    assert all(word in sentence for word in words)
    assert sentence.endswith(".")
    assert {name: getattr(error, name) for name in data} == data


def test_every_leaf_is_in_the_table_above() -> None:
    found = {*_classes(errors), *_classes(access)}
    leaves = {error for error in found if not error.__subclasses__()}

    assert {type(error) for error, _, _ in REFUSALS} == leaves


def test_tree_in_the_docstring_is_the_tree_of_classes() -> None:
    drawn: dict[str, str] = {}
    path = [ForewarnError.__name__]
    for indent, name in re.findall(r"^(\W*)(\w+Error)\b", errors.__doc__ or "", re.MULTILINE):
        path[len(indent) // 2 + 1 :] = [name]
        drawn[name] = path[-2]

    assert drawn == {error.__name__: error.__bases__[0].__name__ for error in _classes(errors)}


def _classes(module: ModuleType) -> list[type[DomainError]]:
    defined = inspect.getmembers(module, inspect.isclass)
    return [value for _, value in defined if issubclass(value, DomainError)]
