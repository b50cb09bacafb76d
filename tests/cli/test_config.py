"""`forewarn config show`: each setting, its value, and where that is from."""

import json
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from forewarn.cli.app import app
from forewarn.cli.settings import CliSettings
from forewarn.private_files import write_secret
from forewarn.settings import Settings, load_settings

Show = Callable[..., dict[str, dict[str, Any]]]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in (*Settings.model_fields, *(each.name for each in fields(CliSettings))):
        monkeypatch.delenv(f"FOREWARN_{name.upper()}", raising=False)
    return tmp_path


def run(*arguments: str, **environment: str) -> str:
    result = CliRunner().invoke(app, ["config", "show", *arguments], env=environment)
    assert result.exit_code == 0, result.output
    return result.stdout


def shown(*arguments: str, **environment: str) -> dict[str, tuple[Any, str, str]]:
    settings = json.loads(run("-o", "json", *arguments, **environment))["settings"]
    return {each["name"]: (each["value"], each["origin"], each["place"]) for each in settings}


def test_nothing_is_set_where_nothing_is() -> None:
    assert shown() == {}


def test_each_setting_has_the_origin_that_won(folder: Path) -> None:
    (folder / "forewarn.toml").write_text('speed = 2\nclock = "real"\nexecutor = "simulated"\n')

    found = shown("--clock", "real", FOREWARN_SPEED="3", FOREWARN_CLOCK="real")

    assert found == {
        "clock": ("real", "flag", "--clock"),
        "speed": (3.0, "environment", "FOREWARN_SPEED"),
        "executor": ("simulated", "file", "forewarn.toml"),
    }


def test_effective_has_every_setting_and_its_default() -> None:
    found = shown("--effective")

    assert found.keys() == {*Settings.model_fields, "server", "token", "ca_file"}
    assert found["control"] == ("127.0.0.1:8170", "default", "")
    assert {origin for _, origin, _ in found.values()} == {"default"}


def test_address_of_commands_follows_from_that_of_the_server(folder: Path) -> None:
    (folder / "forewarn.toml").write_text('control = "127.0.0.1:99"\n')

    assert shown()["server"] == ("http://127.0.0.1:99", "file", "forewarn.toml")
    found = shown(FOREWARN_CONTROL="127.0.0.1:98")
    assert found["server"] == ("http://127.0.0.1:98", "environment", "FOREWARN_CONTROL")
    found = shown(FOREWARN_SERVER="http://far")
    assert found["server"] == ("http://far", "environment", "FOREWARN_SERVER")


@pytest.mark.parametrize("output", ["table", "json", "yaml"])
def test_secrets_are_masked(folder: Path, output: str) -> None:
    (folder / "forewarn.toml").write_text('proxy_secret = "hush"\n')
    write_secret(folder / "admin.token", "open-sesame-for-tests")

    printed = run("--effective", "-o", output)

    assert "hush" not in printed
    assert "open-sesame-for-tests" not in printed
    assert printed.count("********") == 2
    assert "admin.token" in printed


def test_yaml_has_the_same_as_json() -> None:
    environment = {"FOREWARN_SPEED": "3"}

    assert yaml.safe_load(run("-o", "yaml", **environment)) == json.loads(
        run("-o", "json", **environment)
    )


def test_another_file_is_named() -> None:
    Path("other.toml").write_text("speed = 4\n")

    assert shown("--config", "other.toml")["speed"] == (4.0, "file", "other.toml")


def test_password_on_the_command_line_is_shown_with_a_warning() -> None:
    words = ["config", "show", "--database", "postgresql://forewarn:hunter2@db/forewarn"]

    result = CliRunner().invoke(app, words)

    assert "can read the password on the command line" in result.stderr
    assert "hunter2" not in result.output


def test_password_of_the_database_is_masked(folder: Path) -> None:
    url = "postgresql://forewarn:hunter2@db/forewarn?sslpassword=hunter2"
    masked = "postgresql://forewarn:********@db/forewarn?sslpassword=********"

    assert shown(FOREWARN_DATABASE=url)["database"][0] == masked
    assert "hunter2" not in repr(load_settings({"database": url}))
    (folder / "forewarn.toml").write_text(f'database = "{url}"\n')
    assert "hunter2" not in run("--effective") + run("-o", "yaml")
