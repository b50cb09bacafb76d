import time
from datetime import timedelta

import pytest

from forewarn.domain.event import Trigger
from forewarn.domain.fault import FAULTS, Fault, FaultKind
from forewarn.domain.scenario import Announcement, ClearStep, FaultStep, Intervention, Scenario
from forewarn.files.scenario import MOST_LINES, ScenarioError, declare_step, read_scenario
from forewarn.protocol.vocabulary import EventSource, EventType

NIGHT = """\
name = "night"
description = "Two things in one night."

[[step]]
at = "0s"
announce = "Freeze"

[[step]]
at = "2m"
begin = "Reboot"
label = "failure"
source = "User"
description = "It fell."
duration = 30
impact = "0s"

[[step]]
at = "3m"
approve = "1"

[[step]]
at = "3m"
complete = true
"""
BEGINNING = 'name = "night"\n\n[[step]]\nat = "5m"\nannounce = "Freeze"\n'
"""What an erroneous line follows: it is the sixth."""
FAULTY = 'name = "n"\n[[step]]\nat = "0s"\nfault = "reset"\n[[step]]\nat = "0s"\n'
"""The same for one that follows a fault: it is the seventh."""


def test_scenario_is_read_with_its_defaults() -> None:
    assert read_scenario(NIGHT) == Scenario(
        name="night",
        description="Two things in one night.",
        steps=(
            Announcement(
                at=timedelta(0),
                label="1",
                event_type=EventType.FREEZE,
                event_source=EventSource.PLATFORM,
                description="Host server is undergoing maintenance.",
                duration_in_seconds=None,
                notice=timedelta(minutes=15),
                impact=timedelta(minutes=5),
            ),
            Announcement(
                at=timedelta(minutes=2),
                label="failure",
                event_type=EventType.REBOOT,
                event_source=EventSource.USER,
                description="It fell.",
                duration_in_seconds=30,
                notice=None,
                impact=timedelta(0),
            ),
            Intervention(at=timedelta(minutes=3), label="1", trigger=Trigger.APPROVE),
            Intervention(at=timedelta(minutes=3), label="failure", trigger=Trigger.COMPLETE),
        ),
    )


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("", 1, "name: it is required"),
        ('name = "night"\n', 1, "step: it is required"),
        ('name = "night"\nstep = []\n', 2, "step: it is empty"),
        ('\nname = ""\nstep = [{}]', 2, "'' is not a valid name for a scenario"),
        ("name = 5\n", 1, "name: it is not text in quotes"),
        ('name = "a b"\n[[step]]\n', 1, "'a b' is not a valid name for a scenario"),
        (f'name = "n"\ndescription = "{"x" * 4097}"\n[[step]]\n', 2, "more than 4096"),
        ('name = "night"\nsteps = 1\n', 1, "step: it is required. steps: unknown key"),
        ('name = "night"\n\n[step]\nat = "0s"\n', 3, r"write \[\[step\]\]"),
        ('name = "night"\nstep = [\n  1,\n]\n', 2, "step 1: it is not a table"),
        (
            'name = "night"\nstep = [\n  {at = "0s"},\n]\n',
            2,
            "step 1: it needs one of announce, begin",
        ),
        ("name = 'night'\nname = 'day'\n", 2, "Not valid TOML"),
        ("name = 'night'\n\n[[step]\n", 3, "Not valid TOML"),
        ("name = 'night'\nx = '''\n\n", 3, "Not valid TOML"),
        (f"x = {'9' * 5000}\n", 1, "Not valid TOML"),
        (f"x = {'[' * 9000}{']' * 9000}\n", 1, "nested too deeply"),
        ("\n" * MOST_LINES + "x", MOST_LINES + 1, "at most 1000 lines"),
        (f"x = '{'x' * 70_000}'", 1, "and 65536 characters"),
        ('name = "night"\n\n[[step]]\n', 3, "at of step 1: it is required"),
        (
            'name = "night"\n[[step]]\nat = "0s"\nanounce = "Freeze"\n',
            4,
            "anounce of step 1: unknown key",
        ),
        ('name = "night"\n\n[[step]]\nannounce = "Freeze"\n', 3, "at of step 1: it is required"),
        (f'{BEGINNING}begin = "Reboot"\n', 6, "can only have one of announce and begin"),
        (f"{BEGINNING}colour = 3\n", 6, "colour of step 1: unknown key"),
        (f"{BEGINNING}colour.of = 3\n", 6, "colour of step 1: unknown key"),
        (f"{BEGINNING}[step.colour]\nof = 3\n", 6, "colour of step 1: unknown key"),
        (f"{BEGINNING}[colour]\nof = 3\n", 6, "^colour: unknown key"),
        (
            f'{BEGINNING}notice = """\n\nsoon"""\n',
            6,
            r"notice of step 1: invalid duration '\\nsoon'",
        ),
        (f'{BEGINNING}# at\n\nnotice = "-5m"\n', 8, "invalid duration '-5m'"),
        (f"{BEGINNING}notice = true\n", 6, "notice of step 1: invalid duration 'True'"),
        (f'{BEGINNING}impact = "366d"\n', 6, "impact of step 1: it must be 0s to 365d"),
        (
            f'{BEGINNING}impact = "999999999d1d"\n',
            6,
            "impact of step 1: invalid duration",
        ),
        (f'{BEGINNING}duration = "5s"\n', 6, "duration of step 1: it is not a whole number"),
        (f"{BEGINNING}duration = true\n", 6, "it is not a whole number"),
        (f"{BEGINNING}duration = -1\n", 6, "it is too low; the minimum is 0"),
        (f"{BEGINNING}duration = 31536001\n", 6, "too high; the maximum is 31536000"),
        (
            f'{BEGINNING}source = "Me"\n',
            6,
            "source of step 1: it must be one of 'Platform' or 'User'",
        ),
        (f'{BEGINNING}label = "a b"\n', 6, "'a b' is not a valid name for a label"),
        (f'{BEGINNING}description = "{"x" * 4097}"\n', 6, "more than 4096"),
        (BEGINNING.replace("Freeze", "Nap"), 5, "it must be one of 'Freeze', 'Reboot'"),
        (
            f'{BEGINNING}[[step]]\nat = "4m"\ncancel = true\n',
            7,
            "at of step 2: it is earlier than that of the previous step",
        ),
        (f'{BEGINNING}[[step]]\nat = "5m"\ncancel = "x"\n', 8, "cancel of step 2: use true.*: 1"),
        (f'{BEGINNING}[[step]]\nat = "5m"\ncancel = false\n', 8, "cancel of step 2: use true"),
        (f'{BEGINNING}[[step]]\nat = "5m"\ncancel = [1]\n', 8, "cancel of step 2: use true"),
        (
            f'{BEGINNING}[[step]]\r\nat = "5m"\r\ncancel = "x"\r\n',
            8,
            "cancel of step 2: use true",
        ),
        (
            f'{BEGINNING}[[step]]\nat = "5m"\ncancel = true\nnotice = "5m"\n',
            9,
            "notice of step 2: it cannot be used together with cancel",
        ),
        (
            f'{BEGINNING}label = "a"\n[[step]]\nat = "5m"\nbegin = "Reboot"\nlabel = "a"\n',
            10,
            "the label 'a' is already used",
        ),
        (
            f'{BEGINNING}label = "2"\n[[step]]\nat = "5m"\nbegin = "Reboot"\n',
            7,
            "the label '2' is already used; choose another",
        ),
        ('name = "n"\n[[step]]\nat = "1m"\ncancel = true\n', 4, "nothing to cancel yet"),
        (f"{FAULTY}cancel = true\n", 7, "nothing to cancel yet"),
        (f'{FAULTY}fault = "naughty"\n', 7, "fault of step 2: it must be one of 'slow', 'reset'"),
        (f'{FAULTY}fault = "slow"\n', 7, "fault of step 2: a fault of kind slow needs seconds"),
        (
            f'{FAULTY}fault = "slow"\nseconds = "2"\n',
            8,
            "seconds of step 2: seconds must be more than 0 and at most 3600, not '2'",
        ),
        (
            f'{FAULTY}fault = "reset"\nstatus = 500\n',
            8,
            "status of step 2: a fault of kind reset does not take status",
        ),
        (f'{FAULTY}fault = "unknown-type"\nevent_type = true\n', 8, "event_type of step 2"),
        (f'{FAULTY}fault = "reset"\nlabel = "a"\n', 8, "together with fault"),
        (f'{FAULTY}clear = "naughty"\n', 7, "clear of step 2: use true.*: slow, reset"),
        (f"{FAULTY}clear = false\n", 7, "clear of step 2: use true for all faults"),
        (f"{FAULTY}clear = true\ntimes = 3\n", 8, "together with clear"),
        (f"{BEGINNING}times = 3\n", 6, "times of step 1: it cannot be used together"),
        (
            'name = "n"\n[[step]]\nat = "0s"\nbegin = "Reboot"\nnotice = "5m"\n',
            5,
            "notice of step 1: it cannot be used together with begin",
        ),
    ],
)
def test_wrong_scenario_is_refused_with_its_line(text: str, line: int, words: str) -> None:
    with pytest.raises(ScenarioError, match=words) as refused:
        read_scenario(text)

    assert refused.value.line == line
    assert str(refused.value).endswith(".")


def test_every_mistake_is_told_with_its_line() -> None:
    text = f'{BEGINNING}colour = 3\n[[step]]\nat = "soon"\nbegin = "Nap"\nlabel = 5\n'

    with pytest.raises(ScenarioError, match=r"^The scenario has 4 mistakes\. colour of") as refused:
        read_scenario(text)

    assert [each.line for each in refused.value.mistakes] == [6, 8, 9, 10]
    assert refused.value.line == 6


def test_wrong_step_is_not_held_against_those_below() -> None:
    wrong = f'{BEGINNING}label = "a b"\n[[step]]\nat = "4m"\nbegin = "Reboot"\n'
    text = f'{wrong}[[step]]\nat = "6m"\napprove = true\n[[step]]\nat = "6m"\ncancel = "a b"\n'

    with pytest.raises(ScenarioError) as refused:
        read_scenario(text)

    assert [each.line for each in refused.value.mistakes] == [6, 8]


def test_line_is_found_below_text_that_looks_like_a_step() -> None:
    text = (
        f'{BEGINNING}description = """\n[[step]]\nat = "9m"\n"""\n\n[[step]]\nat = "4m"\ncancel = 1'
    )

    with pytest.raises(ScenarioError) as refused:
        read_scenario(text)

    assert refused.value.line == 12


def test_wrong_fault_does_not_shift_the_numbers_of_steps_below() -> None:
    wrong = 'name = "n"\n[[step]]\nat = "0s"\nfault = "slow"\n'
    text = f'{wrong}[[step]]\nat = "1s"\nbegin = "Reboot"\n[[step]]\nat = "1s"\ncancel = "2"\n'

    with pytest.raises(ScenarioError) as refused:
        read_scenario(text)

    assert (refused.value.line, refused.value.mistakes) == (4, ())


NEEDED = {"seconds": "seconds = 2\n", "status": "status = 503\n"}


@pytest.mark.parametrize("kind", FaultKind)
def test_every_fault_can_be_set_and_cleared(kind: FaultKind) -> None:
    needed = "".join(NEEDED[name] for name in FAULTS[kind].needed)
    text = f'name = "n"\n[[step]]\nat = "0s"\nfault = "{kind}"\n{needed}'

    setting, clearing = read_scenario(f'{text}[[step]]\nat = "5m"\nclear = "{kind}"\n').steps

    assert isinstance(setting, FaultStep)
    assert setting.fault.kind is kind
    assert clearing == ClearStep(at=timedelta(minutes=5), kind=kind)


def test_fault_takes_all_its_parameters() -> None:
    step = 'fault = "status"\nstatus = 429\nretry_after = 5\ntimes = 3\n'
    text = f'name = "n"\n[[step]]\nat = "1m"\n{step}[[step]]\nat = "2m"\nclear = true\n'

    steps = read_scenario(text).steps

    fault = Fault(kind=FaultKind.STATUS, status=429, retry_after=5, times=3)
    assert steps == (
        FaultStep(at=timedelta(minutes=1), fault=fault),
        ClearStep(at=timedelta(minutes=2), kind=None),
    )
    assert [declare_step(step) for step in steps] == [
        {"at": "1m", "fault": "status", "times": 3, "status": 429, "retry_after": 5},
        {"at": "2m", "clear": True},
    ]
    one = ClearStep(at=timedelta(minutes=2), kind=FaultKind.SLOW)
    assert declare_step(one) == {"at": "2m", "clear": "slow"}


@pytest.mark.parametrize(
    "text",
    [
        'name = "night"\nstep = [\n' + '{at = "0s", announce = "Freeze"},\n' * 990 + "7]\n",
        'name = "night"\ndescription = """\n' + "a ]\n" * 980 + '"""\nstep = 7\n',
    ],
    ids=["list", "text"],
)
def test_line_is_found_in_a_moment_however_long_a_statement_is(text: str) -> None:
    began = time.thread_time()

    with pytest.raises(ScenarioError) as error:
        read_scenario(text)

    assert time.thread_time() - began < 5
    assert error.value.line is not None
