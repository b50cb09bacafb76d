"""What a real server writes down about those it refuses."""

import contextlib
import sqlite3

from tests.e2e.conftest import Client, ServerMaker

from forewarn.desk.refusals import LINES_PER_MINUTE


def test_flood_is_counted_also_when_the_server_is_stopped_meanwhile(
    start_server: ServerMaker,
) -> None:
    server = start_server()
    spoofed = {"X-Forwarded-For": "192.0.2.1"}  # and no token, as wrong ones are answered late
    with contextlib.closing(Client(server.control_port, spoofed)) as client:
        for _ in range(3 * LINES_PER_MINUTE):
            assert client.ask("POST", "/api/v1/virtual-machines/web-0/restart").status == 401

    assert server.stop() == 0, server.said()

    with contextlib.closing(sqlite3.connect(server.database)) as connection:
        rows = connection.execute(
            """SELECT who, "where", action, detail FROM audit WHERE outcome = 'refused'"""
        ).fetchall()
    assert {(who, where) for who, where, _, _ in rows} == {("-", "127.0.0.1")}
    lines = [row for row in rows if row[2] == "vm restart"]
    counted = sum(int(detail.split()[0]) for _, _, action, detail in rows if action == "-")
    # A minute may have ended while they came.
    assert LINES_PER_MINUTE <= len(lines) <= 2 * LINES_PER_MINUTE
    assert len(lines) + counted == 3 * LINES_PER_MINUTE
