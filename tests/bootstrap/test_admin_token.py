"""A new admin token leaves a line in the audit, whoever takes it and whenever."""

import socket
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from forewarn.bootstrap.start import (
    AdminToken,
    begin,
    new_id,
    note_admin_token,
    renew_admin_token,
    renew_shared_admin_token,
)
from forewarn.operations.context import Context
from forewarn.ports.entries import Actor, AuditEntry
from forewarn.ports.store import Store
from forewarn.settings import Settings, make_settings
from forewarn.storage.postgres import open_postgres
from forewarn.storage.sqlite import open_sqlite

NOW = datetime(2026, 1, 5, 8, tzinfo=UTC)
LATER = NOW + timedelta(minutes=1)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return make_settings({"database": f"sqlite:///{tmp_path / 'forewarn.db'}"})


@pytest.fixture
def store(settings: Settings) -> Iterator[Store]:
    with closing(open_sqlite(settings.database_path)) as opened:
        yield opened


def audit(store: Store) -> tuple[AuditEntry, ...]:
    # Maintenance time is that of this machine.
    entries = store.read(lambda reading: reading.audit())
    return tuple(replace(entry, maintenance_time=LATER) for entry in entries)


def renewal(directory: Path) -> AuditEntry:
    return AuditEntry(
        at=LATER,
        maintenance_time=LATER,
        who="admin",
        actor=Actor.SERVER,
        action="token renew-admin",
        subject="admin",
        detail=f"{directory}/admin.token on {socket.gethostname()}",
    )


def test_token_that_was_renewed_while_no_server_ran_is_audited_once_at_its_start(
    store: Store, settings: Settings, tmp_path: Path
) -> None:
    for _ in range(2):
        begin(store, settings, None, NOW)
    assert audit(store) == ()

    renew_admin_token(tmp_path)
    for _ in range(2):
        begin(store, settings, None, LATER)

    assert audit(store) == (renewal(tmp_path),)


def test_token_that_a_running_server_takes_is_audited_once(
    store: Store, settings: Settings, tmp_path: Path
) -> None:
    noted: list[str] = []
    token = AdminToken(tmp_path, begin(store, settings, None, NOW).token, noted.append)
    token()

    renew_admin_token(tmp_path)

    secrets = {token(), token()}
    assert noted == [*secrets]
    context = Context(who="admin", now=LATER, at=LATER, new_id=new_id, actor=Actor.SERVER)
    store.write(lambda tx: note_admin_token(tx, context, tmp_path, noted[0]))
    begin(store, settings, None, LATER)
    assert audit(store) == (renewal(tmp_path),)


def test_token_of_all_replicas_that_is_renewed_is_audited(
    postgres_url: str, tmp_path: Path
) -> None:
    settings = make_settings({"database": postgres_url, "state_dir": str(tmp_path)})
    with closing(open_postgres(postgres_url)) as store:
        begin(store, settings, None, NOW)

        renew_shared_admin_token(store, settings, LATER)

        assert [entry.action for entry in audit(store)] == ["token create", "token renew-admin"]
        assert audit(store)[1] == renewal(tmp_path)
