"""`forewarn maintenance abort` where something is still running that only an operator can end."""

import json
from pathlib import Path

import pytest
import structlog
from tests.cli.test_golden import FLEET, serving
from typer.testing import CliRunner

from forewarn.cli.app import app
from forewarn.settings import make_settings
from forewarn.settings_table import ClockKind, ExecutorKind


def test_abort_names_what_an_operator_has_to_settle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    manual = {"clock": ClockKind.VIRTUAL, "executor": ExecutorKind.MANUAL, "fleet": FLEET}
    order = ("maintenance", "start", "--type", "Reboot", "--vm", "solo", "-o", "json")
    with serving(make_settings({**manual, "state_dir": tmp_path})) as server:
        environment = {"FOREWARN_SERVER": server, "FOREWARN_STATE_DIR": str(tmp_path)}
        made = CliRunner().invoke(app, order, env=environment)
        CliRunner().invoke(app, ["clock", "advance", "15m"], env=environment)
        abort = ["maintenance", "abort", json.loads(made.stdout)["maintenance_id"], "--yes"]
        said = CliRunner().invoke(app, abort, env=environment)
    structlog.reset_defaults()

    assert said.exit_code == 0, said.stderr
    line = "solo is still running (owner: operator); solo stays busy until you settle it with"
    assert f"/{line} forewarn task settle.\n" in said.stderr
