"""What "Run a relay on each host" says is taken by the programs it is for."""

import re
import subprocess
import tomllib
from pathlib import Path

import pytest
from tests.cli.test_help import helped
from tests.e2e.test_replica_cut_off import ip

from forewarn.front.settings import RELAY_SETTINGS, load_relay_settings
from forewarn.settings import make_settings

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/how-to/run-a-relay-on-each-host.md").read_text("utf-8")
(TABLE,) = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
(RULES,) = re.findall(r"```text\n(table bridge.*?)```", PAGE, re.DOTALL)
COMMANDS = sorted({*re.findall(r"^\$ forewarn (.*)$", PAGE, re.MULTILINE)})
UNIT = (ROOT / "contrib/systemd/forewarn-relay.service").read_text("utf-8")
NFT = Path("/usr/sbin/nft")


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


@pytest.mark.parametrize("line", COMMANDS)
def test_command_exists(line: str) -> None:
    words = line.split()
    verb = words[:2] if words[0] == "token" else words[:1]

    assert all(option in helped(*verb) for option in re.findall(r"--[a-z-]+", line))


def test_server_takes_the_control_listener() -> None:
    (line,) = (line for line in COMMANDS if line.startswith("serve"))
    flags = dict(re.findall(r"--([a-z-]+) (\S+)", line))

    settings = make_settings({name.replace("-", "_"): value for name, value in flags.items()})

    assert settings.control == "10.0.0.5:8170"


def test_relay_is_found_where_the_unit_looks() -> None:
    assert tomllib.loads(TABLE)["token_file"] in UNIT
    assert "relay --config /etc/forewarn/relay.toml" in UNIT


@pytest.mark.skipif(not NFT.exists(), reason="nftables is not installed")
def test_rules_of_the_bridge_are_taken() -> None:
    name = "fw-rules"
    ip("netns", "add", name)
    try:
        done = subprocess.run(
            ["/sbin/ip", "netns", "exec", name, NFT, "--file", "-"],
            input=RULES,
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
    finally:
        ip("netns", "delete", name)

    assert done.returncode == 0, done.stderr
