"""What "Run a relay on each host" says about settings and the unit is true."""

import re
import tomllib
from pathlib import Path

from forewarn.front.settings import RELAY_SETTINGS, load_relay_settings

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/how-to/run-a-relay-on-each-host.md").read_text("utf-8")
(TABLE,) = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
UNIT = (ROOT / "contrib/systemd/forewarn-relay.service").read_text("utf-8")


def test_settings_are_those_of_a_relay(tmp_path: Path) -> None:
    file = tmp_path / "relay.toml"
    file.write_text(TABLE, encoding="utf-8")

    settings = load_relay_settings({}, file)

    assert settings.interface == ("br0",)
    assert settings.metadata == ("169.254.169.254:80",)
    assert f"StateDirectory={settings.state_dir.name}\n" in UNIT


def test_every_setting_is_described() -> None:
    described = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \|", PAGE.partition("## 4.")[2], re.MULTILINE)

    names = [name for row in described for name in re.findall(r"`(\w+)`", row)]
    assert sorted(names[: len(RELAY_SETTINGS)]) == sorted(RELAY_SETTINGS)


def test_relay_is_found_where_the_unit_looks() -> None:
    assert tomllib.loads(TABLE)["token_file"] in UNIT
    assert "relay --config /etc/forewarn/relay.toml" in UNIT


def test_unit_runs_as_the_user_that_owns_the_token() -> None:
    (user,) = re.findall(r"^\$ useradd --system (\S+)$", PAGE, re.MULTILINE)

    assert f"$ chown {user} {tomllib.loads(TABLE)['token_file']}\n" in PAGE
    assert f"\nUser={user}\n" in UNIT
    assert "$ systemctl enable --now forewarn-relay\n" in PAGE
