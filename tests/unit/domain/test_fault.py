"""Which parameter belongs to which kind of fault, and what it can be."""

import re
from collections.abc import Mapping
from http import HTTPStatus
from itertools import product
from math import inf, nan
from typing import Any

import pytest

from forewarn.domain.fault import FAULTS, HTTP_ERRORS, UNKNOWN_TYPE, Fault, FaultError, FaultKind
from forewarn.protocol.vocabulary import EventType

VALUES: Mapping[str, Any] = {
    "times": 2,
    "seconds": 1.5,
    "status": 410,
    "retry_after": 7,
    "event_type": "Nap",
}
NEEDED = {
    FaultKind.SLOW: {"seconds"},
    FaultKind.DRIP: {"seconds"},
    FaultKind.STATUS: {"status"},
    FaultKind.PUBLISH_DELAY: {"seconds"},
    FaultKind.NOT_BEFORE_SLIP: {"seconds"},
    FaultKind.SHORT_NOTICE: {"seconds"},
}
LASTING = {FaultKind.PUBLISH_DELAY, FaultKind.INCARNATION_RESET, FaultKind.INCARNATION_JUMP}
"""These say what is from now on, not what happens to so many requests."""
OPTIONAL: dict[FaultKind, set[str]] = {
    **{kind: {"times"} for kind in FaultKind if kind not in LASTING},
    FaultKind.STATUS: {"times", "retry_after"},
    FaultKind.FAILED_POST: {"times", "status"},
    FaultKind.UNKNOWN_TYPE: {"times", "event_type"},
}


def least(kind: FaultKind) -> dict[str, Any]:
    return {name: VALUES[name] for name in NEEDED.get(kind, ())}


def test_every_kind_is_in_the_table() -> None:
    assert list(FAULTS) == list(FaultKind)


def test_every_effect_is_a_sentence_of_its_own() -> None:
    effects = [traits.effect for traits in FAULTS.values()]

    assert len(set(effects)) == len(FaultKind)
    assert all(re.fullmatch(r"[A-Z][^.]+\.", effect) for effect in effects)


def test_there_is_an_error_for_every_status_that_is_one() -> None:
    assert {status for status in HTTPStatus if status >= 400} == HTTP_ERRORS


@pytest.mark.parametrize("name", ["seconds", "times"])
def test_error_names_the_parameter(name: str) -> None:
    with pytest.raises(FaultError) as caught:
        Fault(kind=FaultKind.SLOW, times=0, seconds=None if name == "seconds" else 1)

    assert caught.value.parameter == name


@pytest.mark.parametrize("kind", FaultKind)
def test_fault_says_what_it_was_given(kind: FaultKind) -> None:
    given = {**least(kind), **{name: VALUES[name] for name in OPTIONAL.get(kind, ())}}

    assert Fault(kind=kind, **given).parameters() == given
    assert Fault(kind=kind, **least(kind)).parameters() == least(kind)


@pytest.mark.parametrize(
    ("kind", "name"), [(kind, name) for kind in NEEDED for name in NEEDED[kind]]
)
def test_fault_without_what_it_needs_is_refused(kind: FaultKind, name: str) -> None:
    with pytest.raises(FaultError, match=f"A fault of kind {kind} needs {name}."):
        Fault(kind=kind)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (kind, name)
        for kind, name in product(FaultKind, VALUES)
        if name not in NEEDED.get(kind, set()) | OPTIONAL.get(kind, set())
    ],
)
def test_fault_with_what_it_cannot_have_is_refused(kind: FaultKind, name: str) -> None:
    given = {**least(kind), name: VALUES[name]}

    with pytest.raises(FaultError, match=f"A fault of kind {kind} does not take {name}."):
        Fault(kind=kind, **given)


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [
        (FaultKind.RESET, "times", 0),
        (FaultKind.RESET, "times", -1),
        (FaultKind.RESET, "times", True),
        (FaultKind.RESET, "times", 1.5),
        (FaultKind.RESET, "times", 10**7),
        (FaultKind.SLOW, "seconds", 0),
        (FaultKind.SLOW, "seconds", -0.1),
        (FaultKind.SLOW, "seconds", nan),
        (FaultKind.SLOW, "seconds", inf),
        (FaultKind.SLOW, "seconds", 3601),
        (FaultKind.SLOW, "seconds", 10**400),
        (FaultKind.SLOW, "seconds", "2"),
        (FaultKind.STATUS, "status", 200),
        (FaultKind.STATUS, "status", 399),
        (FaultKind.STATUS, "status", 599),
        (FaultKind.STATUS, "status", 600),
        (FaultKind.UNKNOWN_TYPE, "event_type", "Reboot"),
        (FaultKind.UNKNOWN_TYPE, "event_type", ""),
        (FaultKind.UNKNOWN_TYPE, "event_type", "two words"),
        (FaultKind.UNKNOWN_TYPE, "event_type", True),
        (FaultKind.UNKNOWN_TYPE, "event_type", "x" * 65),
    ],
)
def test_value_that_cannot_be_is_refused(kind: FaultKind, name: str, value: Any) -> None:
    with pytest.raises(FaultError, match=f"{name} must be "):
        Fault(kind=kind, **{name: value})


@pytest.mark.parametrize("retry_after", [-1, 86_401, 0.5])
def test_wrong_retry_after_is_refused(retry_after: Any) -> None:
    with pytest.raises(FaultError, match="retry_after must be a number from 0 to 86400"):
        Fault(kind=FaultKind.STATUS, status=429, retry_after=retry_after)


def test_unknown_type_is_unknown() -> None:
    assert UNKNOWN_TYPE not in set(EventType)
