"""What a relay is set to, and where from."""

from pathlib import Path
from typing import Any

import pytest

from forewarn.environment import SettingsError
from forewarn.front.settings import RelaySettings, load_relay_settings
from forewarn.settings_table import LogFormat, LogLevel

NEEDED: dict[str, Any] = {"server": "https://centre:8170", "token_file": Path("relay.token")}


def test_defaults_are_those_of_a_host() -> None:
    settings = load_relay_settings(NEEDED, None)

    assert settings == RelaySettings(
        server="https://centre:8170",
        token_file=Path("relay.token"),
        metadata=("169.254.169.254:80",),
        interface=(),
        ca_file=None,
        insecure_control=False,
        state_dir=Path(),
        log_format=LogFormat.CONSOLE,
        log_level=LogLevel.INFO,
    )


def test_flag_wins_over_variable_and_variable_over_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "relay.toml"
    file.write_text(
        'server = "https://file"\ntoken_file = "of-file"\nstate_dir = "of-file"\n'
        'interface = ["br0", "br1"]\n'
    )
    monkeypatch.setenv("FOREWARN_TOKEN_FILE", "of-variable")
    monkeypatch.setenv("FOREWARN_STATE_DIR", "of-variable")
    monkeypatch.setenv("FOREWARN_METADATA", "127.0.0.1:1, [::1]:2")

    settings = load_relay_settings({"state_dir": Path("of-flag")}, file)

    assert settings.server == "https://file"
    assert settings.token_file == Path("of-variable")
    assert settings.state_dir == Path("of-flag")
    assert settings.metadata == ("127.0.0.1:1", "[::1]:2")
    assert settings.interface == ("br0", "br1")


def test_settings_travel_to_the_process_of_the_relay() -> None:
    given = {**NEEDED, "interface": ["br0"], "ca_file": Path("ca.pem"), "log_format": "json"}
    settings = load_relay_settings(given, None)

    assert RelaySettings.decode(settings.encode()) == settings


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"server": None}, "The setting server is required"),
        ({"token_file": None}, "The setting token_file is required"),
        ({"server": "centre:8170"}, "use a URL such as https://HOST:8170"),
        ({"server": "https://"}, "use a URL"),
        ({"server": "https://a:b"}, "use a URL"),
        ({"server": "https://me:secret@centre"}, "use a URL"),
        ({"server": "https://centre/api"}, "use a URL"),
        ({"server": "http://centre:8170"}, "over plain HTTP"),
        ({"metadata": ["nowhere"]}, "'nowhere' is not a valid address"),
        ({"metadata": []}, "The setting metadata is empty"),
        ({"metadata": ["unix:/run/x"], "interface": ["br0"]}, "cannot be bound to an interface"),
        ({"log_level": "loud"}, "'loud' is not a valid LogLevel"),
    ],
)
def test_setting_that_cannot_be_is_refused(given: dict[str, Any], problem: str) -> None:
    with pytest.raises(SettingsError, match=problem):
        load_relay_settings({**NEEDED, **given}, None)


@pytest.mark.parametrize(
    "given",
    [
        {"server": "http://127.0.0.1:8170"},
        {"server": "http://localhost:8170/"},
        {"server": "http://centre:8170", "insecure_control": True},
        {"server": "http://centre:8170", "insecure_control": "yes"},
    ],
)
def test_plain_http_is_for_loopback_and_for_networks_that_encrypt(given: dict[str, Any]) -> None:
    assert load_relay_settings({**NEEDED, **given}, None).server == given["server"]


def test_unknown_key_of_the_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "relay.toml"
    file.write_text('database = "x"\n')

    with pytest.raises(SettingsError, match=r"relay\.toml: unknown setting 'database'"):
        load_relay_settings(NEEDED, file)
