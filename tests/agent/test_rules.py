from datetime import timedelta
from typing import Any

import pytest
from tests.agent.conftest import ME, make_event

from forewarn.agent.rules import Rule, judge
from forewarn.agent.vocabulary import RuleVerdict
from forewarn.protocol.vocabulary import EventSource, EventType

NO_RULES: tuple[Rule, ...] = ()


@pytest.mark.parametrize(
    ("fields", "verdict"),
    [
        ({"event_type": EventType.FREEZE, "duration_in_seconds": 0}, RuleVerdict.IGNORE),
        ({"event_type": EventType.FREEZE, "duration_in_seconds": 9}, RuleVerdict.IGNORE),
        ({"event_type": EventType.FREEZE, "duration_in_seconds": 10}, RuleVerdict.HANDLE),
        ({"event_type": EventType.FREEZE, "duration_in_seconds": None}, RuleVerdict.HANDLE),
        ({"event_type": EventType.REBOOT, "duration_in_seconds": 1}, RuleVerdict.HANDLE),
        *(({"event_type": each}, RuleVerdict.HANDLE) for each in EventType),
        ({"event_type": "SpotRebalanceRecommendation"}, RuleVerdict.NOTIFY),
    ],
)
def test_default_rules_only_log_short_freezes_and_handle_what_they_know(
    fields: dict[str, Any], verdict: RuleVerdict
) -> None:
    assert judge(make_event(**fields), ME, NO_RULES) is verdict


@pytest.mark.parametrize(
    ("conditions", "fits"),
    [
        ({}, True),
        ({"event_types": ("Freeze", "Reboot")}, True),
        ({"event_types": ("Freeze",)}, False),
        ({"event_sources": ("User",)}, True),
        ({"event_sources": ("Platform",)}, False),
        ({"shorter_than": timedelta(seconds=61)}, True),
        ({"shorter_than": timedelta(seconds=60)}, False),
        ({"at_least": timedelta(seconds=60)}, True),
        ({"at_least": timedelta(seconds=61)}, False),
        ({"at_least": timedelta(seconds=10), "shorter_than": timedelta(seconds=70)}, True),
        ({"names": ("db-*", "WEB-*")}, True),
        ({"names": ("db-*",)}, False),
        ({"event_types": ("Reboot",), "names": ("db-*",)}, False),
    ],
)
def test_rule_fits_when_every_condition_does(conditions: dict[str, Any], fits: bool) -> None:  # noqa: FBT001
    event = make_event(duration_in_seconds=60, event_source=EventSource.USER)

    assert Rule(then=RuleVerdict.IGNORE, **conditions).fits(event, ME) is fits


def test_unknown_duration_is_neither_short_nor_long() -> None:
    event = make_event(duration_in_seconds=None)

    assert not Rule(then=RuleVerdict.IGNORE, shorter_than=timedelta(days=1)).fits(event, ME)
    assert not Rule(then=RuleVerdict.IGNORE, at_least=timedelta(0)).fits(event, ME)


def test_duration_may_be_any_number() -> None:
    event = make_event(event_type=EventType.FREEZE, duration_in_seconds=2**63 - 1)

    assert judge(event, ME, NO_RULES) is RuleVerdict.HANDLE
    assert Rule(then=RuleVerdict.IGNORE, at_least=timedelta.max).fits(event, ME)


def test_first_rule_that_fits_says() -> None:
    rules = (
        Rule(event_types=("Freeze",), then=RuleVerdict.IGNORE),
        Rule(event_types=("Reboot",), then=RuleVerdict.NOTIFY),
        Rule(then=RuleVerdict.HANDLE),
    )

    assert judge(make_event(), ME, rules) is RuleVerdict.NOTIFY
    assert judge(make_event(event_type="Redeploy"), ME, rules) is RuleVerdict.HANDLE
