"""What the page on metrics, the alert rules and the dashboard speak of is what the server has."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from forewarn.telemetry.metrics import METRICS

ROOT = Path(__file__).parent.parent.parent
PAGE = ROOT / "docs/reference/metrics.md"
ALERTS = ROOT / "contrib/prometheus/alerts.yml"
DASHBOARD = ROOT / "contrib/grafana/forewarn.json"
SERIES = re.compile(r"\b(forewarn_\w+?)(?:_bucket|_sum|_count)?(?=[^\w]|$)(?:\{([^}]*)\})?")
FROM_PROMETHEUS = {"job", "instance"}


def rules() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"]
    found: list[dict[str, Any]] = group["rules"]
    return found


def panels() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]
    return found


def expressions() -> Iterator[str]:
    yield from (rule["expr"] for rule in rules())
    yield from (target["expr"] for panel in panels() for target in panel["targets"])


def test_page_has_every_metric_as_it_is() -> None:
    row = re.compile(r"^\| `(forewarn_\w+)` \| (\w+) \| (.*?)\| (.*) \|$", re.MULTILINE)

    shown = {
        name: (kind, tuple(re.findall(r"`(\w+)`", labels)), tells)
        for name, kind, labels, tells in row.findall(PAGE.read_text(encoding="utf-8"))
    }

    assert shown == {
        name: (family.kind, family.labels, family.help) for name, family in METRICS.items()
    }


@pytest.mark.parametrize("expression", list(expressions()))
def test_expression_is_about_metrics_that_exist(expression: str) -> None:
    assert expression.count("(") == expression.count(")")
    named = SERIES.findall(expression)
    assert named or 'up{job="forewarn"}' in expression

    known: set[str] = set(FROM_PROMETHEUS)
    for name, matchers in named:
        assert name in METRICS
        known |= {*METRICS[name].labels, "le"}
        assert set(re.findall(r"(\w+)\s*[=!]", matchers)) <= known
    for grouped in re.findall(r"\b(?:by|on|group_left) \(([^)]*)\)", expression):
        assert set(re.split(r",\s*", grouped)) <= known


def test_every_metric_is_on_the_dashboard() -> None:
    shown = {
        name
        for panel in panels()
        for target in panel["targets"]
        for name, _ in SERIES.findall(target["expr"])
    }

    assert shown == set(METRICS)


def test_every_alert_says_what_is_wrong_and_what_it_means() -> None:
    assert len({rule["alert"] for rule in rules()}) == len(rules())
    for rule in rules():
        assert rule.keys() <= {"alert", "expr", "for", "labels", "annotations"}
        assert rule["labels"]["severity"] in {"critical", "warning"}
        assert rule["annotations"].keys() == {"summary", "description"}


def test_panels_have_places_of_their_own() -> None:
    places = {(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels()}

    assert len(places) == len({panel["id"] for panel in panels()}) == len(panels())
