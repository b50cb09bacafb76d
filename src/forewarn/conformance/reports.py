"""The grades as programs read them: an object for JSON and YAML, and JUnit XML."""

from typing import Any
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from forewarn.conformance.battery import ConformanceReport, SituationReport
from forewarn.conformance.grades import MEANINGS, Grade, GradeOutcome, GradeResult
from forewarn.protocol.controls import printable


def write_object(report: ConformanceReport) -> dict[str, Any]:
    """Return *report* as an object of JSON."""
    return {
        "score": round(report.score, 1),
        "highest_score": report.highest_score,
        **{str(outcome): report.count(outcome) for outcome in GradeOutcome},
        "grades": [
            {
                "grade": str(grade),
                "meaning": meaning,
                **{str(outcome): report.count(outcome, grade) for outcome in GradeOutcome},
            }
            for grade, meaning in MEANINGS.items()
        ],
        "findings": [
            {
                "grade": str(finding.grade),
                "reason": finding.reason,
                "remedy": str(finding.remedy),
                "situations": list(finding.situations),
            }
            for finding in report.findings
        ],
        "situations": [_write_situation(situation) for situation in report.situations],
    }


def write_junit(report: ConformanceReport) -> bytes:
    """Return *report* as the XML that CI systems read: a suite for each situation."""
    root = Element("testsuites", _counts(report))
    for situation in report.situations:
        about = {"name": situation.name, "time": f"{situation.seconds:.3f}"}
        counts = _counts(ConformanceReport((situation,)))
        suite = SubElement(root, "testsuite", {**about, **counts})
        for grade, result in situation.results.items():
            case = SubElement(suite, "testcase", classname=situation.name, name=grade)
            _add_result(case, result)
        SubElement(suite, "system-out").text = "\n".join(map(printable, situation.last_lines))
    indent(root)
    text: str = tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="utf-8"?>\n{text}\n'.encode()


def _write_situation(situation: SituationReport) -> dict[str, Any]:
    return {
        "situation": situation.name,
        "description": situation.description,
        "seconds": round(situation.seconds, 3),
        "results": [
            {"grade": str(grade), "outcome": str(result.outcome), "reason": result.reason}
            for grade, result in _in_order(situation)
        ],
        "last_lines": list(situation.last_lines),
    }


def _in_order(situation: SituationReport) -> list[tuple[Grade, GradeResult]]:
    return [(grade, situation.results[grade]) for grade in Grade if grade in situation.results]


def _counts(report: ConformanceReport) -> dict[str, str]:
    counted = {outcome: report.count(outcome) for outcome in GradeOutcome}
    return {
        "tests": str(sum(counted.values())),
        "failures": str(counted[GradeOutcome.FAILED]),
        "skipped": str(counted[GradeOutcome.SKIPPED]),
    }


def _add_result(case: Element, result: GradeResult) -> None:
    tags = {GradeOutcome.FAILED: "failure", GradeOutcome.SKIPPED: "skipped"}
    if result.outcome in tags:
        element = SubElement(case, tags[result.outcome], message=printable(result.reason))
        element.text = result.remedy
