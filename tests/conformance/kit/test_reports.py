"""What is reported about made-up results."""

from xml.etree import ElementTree as ET

from forewarn.conformance.battery import ConformanceReport, SituationReport
from forewarn.conformance.grades import Grade, GradeOutcome, GradeRemedy, GradeResult
from forewarn.conformance.reports import write_junit, write_object

PASSED = GradeResult(GradeOutcome.PASSED)


def failed(remedy: GradeRemedy, reason: str) -> GradeResult:
    return GradeResult(GradeOutcome.FAILED, reason, remedy)


def situation(name: str, **results: GradeResult) -> SituationReport:
    graded = {Grade[grade]: result for grade, result in results.items()}
    return SituationReport(name=name, description=f"This is {name}.", results=graded)


HASTY = ConformanceReport(
    (
        situation("first", SAW=PASSED, ONCE=failed(GradeRemedy.REMEMBER, "prepared 2 times")),
        situation(
            "second",
            RUNNING=failed(GradeRemedy.SURVIVE, "exited with 1"),
            ONCE=failed(GradeRemedy.REMEMBER, "prepared 3 times"),
        ),
    )
)
MEDDLING = ConformanceReport(
    (
        situation("first", **{grade.name: PASSED for grade in Grade}),
        situation("second", OWN=failed(GradeRemedy.LEAVE_OTHERS, "approved the Reboot of web-1")),
    )
)


def test_equal_findings_are_one_and_the_worst_is_first() -> None:
    assert write_object(HASTY)["findings"] == [
        {
            "grade": "running",
            "reason": "exited with 1",
            "remedy": GradeRemedy.SURVIVE,
            "situations": ["second"],
        },
        {
            "grade": "once",
            "reason": "prepared 2 times",
            "remedy": GradeRemedy.REMEMBER,
            "situations": ["first", "second"],
        },
    ]


def test_handler_that_affects_other_machines_scores_at_most_half() -> None:
    meddling, hasty = write_object(MEDDLING), write_object(HASTY)

    assert (meddling["score"], meddling["highest_score"]) == (50, 50)
    assert (meddling["passed"], meddling["failed"]) == (len(Grade), 1)
    assert (hasty["score"], hasty["highest_score"]) == (25, 100)


def test_junit_says_how_to_mend_a_failure() -> None:
    (failure,) = ET.fromstring(write_junit(MEDDLING)).iter("failure")  # noqa: S314 - it is ours

    assert failure.attrib["message"] == "approved the Reboot of web-1"
    assert failure.text == GradeRemedy.LEAVE_OTHERS
