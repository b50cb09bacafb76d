"""Lists that the server has in pages are printed whole."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.cli.conftest import MORNING
from typer.testing import Result

from forewarn.ports.entries import AuditEntry
from forewarn.ports.store import Store, Transaction

Run = Callable[..., Result]

MANY = 2001
"""More than two pages of a thousand."""


def printed(result: Result) -> Any:
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_every_machine_is_listed_in_fleet_order(run: Run, tmp_path: Path) -> None:
    names = [f"vm-{number}" for number in range(MANY)]
    text = "".join(f'[[virtual_machine]]\nname = "{name}"\n' for name in names)
    (tmp_path / "many.toml").write_text(text, encoding="utf-8")
    assert (
        run("fleet", "apply", "many.toml", "--prune", "--yes", "--allow-removals", "3").exit_code
        == 0
    )

    listed = printed(run("vm", "list", "-o", "json"))["virtual_machines"]

    assert [vm["name"] for vm in listed] == names
    assert run("fleet", "show").stdout.count("\nvm-") == MANY


def test_history_is_listed_from_its_beginning_unless_limited(run: Run, store: Store) -> None:
    def append(tx: Transaction) -> None:
        for number in range(MANY):
            tx.append_audit(
                AuditEntry(
                    at=MORNING,
                    maintenance_time=MORNING,
                    who="bob",
                    action="event create",
                    subject=str(number),
                )
            )

    store.write(append)

    every = printed(run("audit", "--who", "bob", "-o", "json"))["audit"]
    newest = printed(run("audit", "--who", "bob", "--limit", "3", "-o", "json"))["audit"]

    subjects = [str(number) for number in range(MANY)]
    assert [entry["subject"] for entry in every] == subjects
    assert [entry["subject"] for entry in newest] == subjects[-3:]
