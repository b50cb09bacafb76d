"""What the page on the agent says is what the agent does."""

import re
from pathlib import Path

from forewarn.agent.hooks import LONGEST_VALUE, NOT_YET, describe
from forewarn.agent.processes import GRACE_SECONDS
from forewarn.agent.rules import SHORT_FREEZE
from forewarn.agent.settings import (
    HOOK_KEYS,
    KEYS,
    RULE_KEYS,
    AgentSettings,
    read_settings,
    read_surroundings,
)
from forewarn.agent.startup import UNUSABLE
from forewarn.agent.status import METRICS, Status, write_metrics
from forewarn.agent.vocabulary import HookOutcome, HookPhase, RuleVerdict
from forewarn.client import Change, ChangeKind, Event, Polled
from forewarn.protocol.vocabulary import EventStatus, EventType, event_id

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs/reference/agent.md").read_text(encoding="utf-8")
EVENT = Event(
    event_id=event_id("C7061BAC-AFDC-4513-B24B-AA5F13A16123"),
    event_status=EventStatus.SCHEDULED,
    event_type=EventType.REBOOT,
    resources=("web-0",),
)


def example() -> str:
    (text,) = re.findall(r"^```toml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    return str(text)


def rows(columns: int) -> list[tuple[str, ...]]:
    cell = r" ([^|]*?) \|"
    return re.findall(rf"^\|{cell * columns}$", PAGE.replace("| |", "|  |"), re.MULTILINE)


def test_configuration_of_the_reference_is_one_and_has_every_key(tmp_path: Path) -> None:
    file = tmp_path / "agent.toml"
    there = example().replace('hooks_dir = "/etc/forewarn/hooks.d"', f'hooks_dir = "{tmp_path}"')
    file.write_text(there, encoding="utf-8")

    settings = read_settings(file, read_surroundings({}))

    assert [rule.then for rule in settings.rules] == [RuleVerdict.IGNORE, RuleVerdict.NOTIFY]
    for key in (*KEYS, *RULE_KEYS, *HOOK_KEYS):
        assert re.search(rf"^({key} = |\[+{key}\])", example(), re.MULTILINE), key


def test_defaults_of_the_reference_are_those_there_are(tmp_path: Path) -> None:
    defaults = AgentSettings(hooks_dir=tmp_path, state_dir=tmp_path)
    seconds = {"timeout": "10m", "ask_again": "10s", "postpone": "5m"}

    for key, text in seconds.items():
        assert f'{key} = "{text}"' in example()
        unit = {"m": 60, "s": 1}[text[-1]]
        assert getattr(defaults, key).total_seconds() == int(text[:-1]) * unit
    assert f'default "{defaults.approval}"' in example()
    assert f"a Freeze of less than {SHORT_FREEZE.seconds} s is ignored" in PAGE
    assert f"SIGKILL {GRACE_SECONDS:.0f} s later" in PAGE
    assert f"more than {LONGEST_VALUE:,} bytes" in PAGE


def test_phases_and_variables_of_the_reference_are_those_there_are() -> None:
    phases = [row[0].strip("`") for row in rows(3) if row[2].find("`timeout`") >= 0]
    variables = [row[0].strip("`") for row in rows(2) if row[0].startswith("`EVENT_")]

    assert phases == list(HookPhase)
    assert variables == list(describe(EVENT, HookPhase.NOTIFY))


def test_exit_statuses_of_the_reference_are_those_there_are() -> None:
    meanings = {row[0]: row[1] for row in rows(2)}

    assert meanings["0"] == HookOutcome.READY
    assert meanings[str(NOT_YET)].startswith("not yet")


def test_metrics_of_the_reference_are_those_there_are() -> None:
    status = Status()
    status.note_poll(Polled(seconds=0, document_incarnation=1))
    status.note_change(Change(kind=ChangeKind.SCHEDULED, event=EVENT, document_incarnation=1))
    status.hooks = {(HookPhase.SCHEDULED, HookOutcome.READY): 1}
    shown = write_metrics(status)

    documented = {row[0].strip("`"): row[1:] for row in rows(4) if row[0].startswith("`")}

    assert documented.keys() == METRICS.keys()
    for name, (kind, labels, meaning) in documented.items():
        assert METRICS[name][:2] == (kind, meaning)
        sample = re.search(rf"^{name}\{{(.*)\}}", shown, re.MULTILINE)
        if sample and "le=" not in sample[1]:
            assert re.findall(r"(\w+)=", sample[1]) == re.findall(r"\w+", labels)


def test_unit_of_systemd_runs_the_agent_and_waits_for_hooks() -> None:
    unit = (ROOT / "contrib/systemd/forewarn-agent.service").read_text(encoding="utf-8")

    settings = dict(re.findall(r"^(\w+)=(.*)$", unit, re.MULTILINE))

    assert settings["Type"] == "notify"
    assert settings["ExecStart"].endswith("/forewarn-agent run")
    assert settings["KillMode"] == "mixed"
    assert settings["RestartPreventExitStatus"] == str(UNUSABLE)
    default_state = read_surroundings({}, platform="linux").state
    assert f"/var/lib/{settings['StateDirectory']}" == str(default_state)
