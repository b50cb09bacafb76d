"""The admin token, lost and renewed on the machine of a running server."""

import stat
from contextlib import closing

from tests.e2e.conftest import Client, Server, ServerMaker, wait_until


def answer(server: Server, token: str) -> int:
    with closing(Client(server.control_port, {"Authorization": f"Bearer {token}"})) as client:
        return client.ask("GET", "/api/v1/tokens").status


def test_lost_admin_token_is_renewed_and_the_old_one_is_refused(start_server: ServerMaker) -> None:
    server = start_server()
    path = server.database.parent / "admin.token"
    old = path.read_text(encoding="ascii").strip()
    path.unlink()
    assert answer(server, old) == 200, "a server goes on with what it knows"

    where = ("--database", f"sqlite:///{server.database}")
    done = server.try_command("token", "renew-admin", *where)

    new = path.read_text(encoding="ascii").strip()
    assert done.returncode == 0, done.stderr
    assert new not in done.stdout + done.stderr + server.said()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert (answer(server, new), answer(server, old)) == (200, 401)
    assert "admin_token_renewed" in server.said()
    wait_until(lambda: renewals(server, new) == 1, "no line in the audit", 30)
    server.restart()
    assert (answer(server, new), answer(server, old)) == (200, 401)
    assert renewals(server, new) == 1


def renewals(server: Server, token: str) -> int:
    """Count the lines about a new admin token; the server writes them, so they name no operator."""
    with closing(Client(server.control_port, {"Authorization": f"Bearer {token}"})) as client:
        lines = client.ask("GET", "/api/v1/audit?action=token%20renew-admin").json()["audit"]
    assert {(line["who"], line["actor"]) for line in lines} <= {("admin", "server")}
    return len(lines)


def test_server_does_not_start_with_a_token_that_others_can_read(make_server: ServerMaker) -> None:
    server = make_server()
    path = server.database.parent / "admin.token"
    path.write_text("fw_written-by-somebody-else\n", encoding="ascii")
    path.chmod(0o644)

    refused = server.run_to_the_end()

    assert refused.returncode == 1
    assert f"Other users can access {path}; run: chmod 600 {path}" in refused.stderr
    assert not server.database.exists()


def test_running_server_does_not_take_a_token_that_others_can_read(
    start_server: ServerMaker,
) -> None:
    server = start_server()
    old, path = server.token(), server.database.parent / "admin.token"

    path.chmod(0o644)
    path.write_text("fw_written-by-somebody-else\n", encoding="ascii")

    assert answer(server, "fw_written-by-somebody-else") == 401
    assert answer(server, old) == 200
    assert "admin_token_refused" in server.said()
