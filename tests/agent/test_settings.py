import os
from datetime import timedelta
from pathlib import Path

import pytest

from forewarn.agent.errors import AgentSettingsError
from forewarn.agent.rules import Rule
from forewarn.agent.settings import AgentSettings, read_settings, read_surroundings
from forewarn.agent.vocabulary import ApprovalMode, HookPhase, RuleVerdict

NOWHERE = read_surroundings({}, platform="linux")

EVERYTHING = """
endpoint = "http://10.0.0.1:8169"
name = "web-0"
approval = "leader"
hooks_dir = "/"
state_dir = "/opt/state"
timeout = "20m"
ask_again = "5s"
postpone = "1h"
listen = "127.0.0.1:9169"

[hooks]
scheduled = ["systemctl stop app", "sync"]
recovered = "systemctl start app"

[[rule]]
type = "Freeze"
shorter_than = "30s"
then = "ignore"

[[rule]]
type = ["Preempt", "terminate"]
source = "Platform"
at_least = "0s"
name = ["web-*", "db-*"]
then = "notify"
"""


def read(tmp_path: Path, text: str) -> AgentSettings:
    file = tmp_path / "agent.toml"
    file.write_text(text, encoding="utf-8")
    return read_settings(file, NOWHERE)


def test_every_key_is_read(tmp_path: Path) -> None:
    settings = read(tmp_path, EVERYTHING)

    assert settings == AgentSettings(
        endpoint="http://10.0.0.1:8169",
        name="web-0",
        approval=ApprovalMode.LEADER,
        hooks_dir=Path("/"),
        state_dir=Path("/opt/state"),
        timeout=timedelta(minutes=20),
        ask_again=timedelta(seconds=5),
        postpone=timedelta(hours=1),
        listen=("127.0.0.1", 9169),
        hooks={
            HookPhase.SCHEDULED: ("systemctl stop app", "sync"),
            HookPhase.RECOVERED: ("systemctl start app",),
        },
        rules=(
            Rule(
                event_types=("Freeze",), shorter_than=timedelta(seconds=30), then=RuleVerdict.IGNORE
            ),
            Rule(
                event_types=("Preempt", "Terminate"),
                event_sources=("Platform",),
                at_least=timedelta(0),
                names=("web-*", "db-*"),
                then=RuleVerdict.NOTIFY,
            ),
        ),
    )


def test_without_a_file_nothing_is_approved_and_nobody_listens() -> None:
    settings = read_settings(None, NOWHERE)

    assert (settings.approval, settings.listen, settings.rules) == (ApprovalMode.NEVER, None, ())
    assert settings.hooks_dir == Path("/etc/forewarn/hooks.d")
    assert settings.state_dir == Path("/var/lib/forewarn-agent")


def test_hooks_are_beside_the_file(tmp_path: Path) -> None:
    assert read(tmp_path, "").hooks_dir == tmp_path / "hooks.d"


@pytest.mark.parametrize(
    ("text", "key", "hint"),
    [
        ("= 1", "", "not valid TOML"),
        ('aproval = "never"', "aproval", "known keys: endpoint, name, approval"),
        ('approval = "always"', "approval", "not one of never, when-ready, leader"),
        ("approval = 3", "approval", "one of never, when-ready, leader"),
        ('name = ""', "name", "a string"),
        ('endpoint = "https://host"', "endpoint", "metadata servers use plain http"),
        ('state_dir = "state"', "state_dir", "an absolute path"),
        ('state_dir = "/a\\u0000b"', "state_dir", "a NUL character"),
        ('hooks_dir = "/nowhere/hooks.d"', "hooks_dir", "folder not found"),
        ('[hooks]\nstarted = ["a", "b\\u0000"]', "hooks.started", "a NUL character"),
        ('[hooks]\nstarted = "b\\u0000"', "hooks.started", "a NUL character"),
        ("name = " + "[" * 100_000, "", "too deep"),
        ("[[rule]]\ntype = []", "rule.1.type", "the list is empty"),
        ("[[rule]]\nname = []", "rule.1.name", "the list is empty"),
        ("timeout = 30", "timeout", '"30s", "10m" or "1h"'),
        ('timeout = "0s"', "timeout", "longer than 0 s"),
        ('ask_again = "soon"', "ask_again", '"30s", "10m" or "1h"'),
        ('listen = "9169"', "listen", "HOST:PORT"),
        ('listen = "127.0.0.1:99999"', "listen", "HOST:PORT"),
        ("hooks = 1", "hooks", "a table with the keys scheduled, started"),
        ('[hooks]\nfinished = "x"', "hooks.finished", "known keys: scheduled, started"),
        ("[hooks]\nstarted = [1]", "hooks.started", "a string, or a list"),
        ('[rule]\nthen = "ignore"', "rule", "[[rule]]"),
        ("rule = [1]", "rule.1", "a table with the keys type"),
        ('[[rule]]\nthen = "handle"\n[[rule]]\ntype = "Freeze"', "rule.2.then", "required key"),
        (
            '[[rule]]\ntype = "Freze"\nthen = "ignore"',
            "rule.1.type",
            "'Freze' is not one of Freeze",
        ),
        ('[[rule]]\nsource = "Me"\nthen = "ignore"', "rule.1.source", "Platform, User"),
    ],
)
def test_what_cannot_be_used_is_named_with_file_key_and_what_to_do(
    tmp_path: Path, text: str, key: str, hint: str
) -> None:
    with pytest.raises(AgentSettingsError) as caught:
        read(tmp_path, text)

    assert str(caught.value).startswith(f"{tmp_path / 'agent.toml'}: {key}{': ' if key else ''}")
    assert hint in str(caught.value)


def test_file_that_was_named_has_to_be_there(tmp_path: Path) -> None:
    with pytest.raises(
        AgentSettingsError, match="file not found; use --config to name another one"
    ):
        read_settings(tmp_path / "agent.toml", NOWHERE)


def test_file_that_is_no_text_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "agent.toml").write_bytes(b"\xff\xfe")

    with pytest.raises(AgentSettingsError, match="cannot read the file"):
        read_settings(tmp_path / "agent.toml", NOWHERE)


def test_mark_that_editors_of_windows_write_first_is_no_part_of_the_file(tmp_path: Path) -> None:
    assert read(tmp_path, '\ufeffname = "web-0"').name == "web-0"


def test_path_that_the_locale_cannot_name_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def encode(path: Path) -> bytes:
        return str(path).encode("latin-1")

    monkeypatch.setattr(os, "fsencode", encode)

    with pytest.raises(AgentSettingsError, match="state_dir: the locale of this process cannot"):
        read(tmp_path, 'state_dir = "/\u2013"')


def test_windows_has_its_own_places() -> None:
    surroundings = read_surroundings({"ProgramData": "D:/Data"}, platform="win32")

    assert surroundings.configuration == surroundings.state == Path("D:/Data") / "forewarn"


def test_systemd_says_where_and_how_often() -> None:
    error = os.fstat(2)

    surroundings = read_surroundings(
        {
            "STATE_DIRECTORY": "/var/lib/elsewhere",
            "NOTIFY_SOCKET": "@socket",
            "WATCHDOG_USEC": "120000000",
            "JOURNAL_STREAM": f"{error.st_dev}:{error.st_ino}",
        },
        platform="linux",
    )

    assert surroundings.state == Path("/var/lib/elsewhere")
    assert (surroundings.notify_socket, surroundings.watchdog_seconds) == ("@socket", 120.0)
    assert surroundings.is_journaled
    assert surroundings.variables.keys() == {"STATE_DIRECTORY", "JOURNAL_STREAM"}


def test_journal_that_somebody_else_writes_to_is_not_ours() -> None:
    assert not read_surroundings({"JOURNAL_STREAM": "8:1"}).is_journaled
