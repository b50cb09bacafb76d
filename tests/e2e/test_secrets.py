"""A secret is told once: no log, no error, no file and no process list has it."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.e2e.conftest import Client, ServerMaker

# Everything that any library has to say, too. What follows is the command line of the server.
TALKATIVE = """
import logging, sys
for name in ("asyncio", "concurrent", "fastapi", "sqlalchemy", "sqlalchemy.engine", "starlette",
             "uvicorn", "uvicorn.access", "uvicorn.asgi", "uvicorn.error"):
    logging.getLogger(name).setLevel(1)
del sys.argv[0]
from forewarn.cli import main
main()
"""
EVENT = "00000000-0000-4000-8000-000000000000"


def test_secret_is_nowhere_but_with_who_was_given_it(
    make_server: ServerMaker, tmp_path: Path
) -> None:
    server = make_server(prefix=(sys.executable, "-c", TALKATIVE))
    server.start()
    assert server.process is not None
    made = server.command("token", "create", "deploy", "--role", "operator", "--scope", "web")
    admin = server.token()
    secret = made["secret"]
    code = server.command("open")["url"].rpartition("#")[2]

    answers = list(_provoke(Client(server.control_port, bearer(secret)), secret))
    answers += [json.dumps(server.command(*words)) for words in (("token", "list"), ("audit",))]
    denied = server.try_command("vm", "list", "--token", "fw_wrong")
    listed = "".join(map(_command_line, Path("/proc").glob("[0-9]*/cmdline")))
    server.command("token", "revoke", "deploy")
    answers += list(_provoke(Client(server.control_port, bearer(secret)), secret, status=401))
    assert server.stop() == 0

    assert "SELECT tokens.token_hash" in server.said(), "the log is not talkative enough"
    assert "fw_…" in server.said()
    assert "forewarn" in listed
    for hidden in (secret, admin, code):
        assert hidden not in server.said()
        assert hidden not in denied.stdout + denied.stderr
        assert hidden not in listed
    # What somebody typed into a request comes back to them alone; see `_provoke`.
    assert not any(hidden in answer for answer in answers for hidden in (secret, code))
    for file in (path for path in tmp_path.rglob("*") if path.is_file()):
        assert not any(hidden.encode() in file.read_bytes() for hidden in (secret, code)), file


def _command_line(file: Path) -> str:
    """Return what `ps` shows of a process, if it is still there."""
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def bearer(secret: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {secret}"}


def _provoke(client: Client, secret: str, status: int | None = None) -> Iterator[str]:
    """Have every kind of answer, and yield those that do not repeat what was asked."""
    asked: tuple[tuple[int, str, str, object], ...] = (
        (200, "GET", "virtual-machines", None),
        (201, "POST", "virtual-machines/web-0/restart", None),
        (409, "POST", "virtual-machines/web-0/restart", None),
        (404, "POST", f"events/{EVENT}/approve", None),
        (404, "GET", "virtual-machines/solo-0", None),
        (403, "GET", "audit", None),
        (403, "POST", "fleet", {"fleet": {}}),
        (405, "DELETE", "fleet", None),
        (422, "POST", "events", {"event_type": "Reboot"}),
    )
    for expected, method, path, body in asked:
        answer = client.ask(method, f"/api/v1/{path}", body)
        assert answer.status == (status or expected), (method, path, answer)
        yield answer.body.decode() + repr(answer.headers)
    misplaced: tuple[tuple[str, str, object], ...] = (
        ("DELETE", f"tokens/{secret}", None),
        ("POST", f"virtual-machines/{secret}/restart", None),
        ("POST", f"events/{secret}/approve", None),
        ("POST", "events", {"event_type": "Reboot", "resources": [secret]}),
        ("POST", "maintenances", {"event_type": "Freeze", "scopes": [secret]}),
    )
    for method, path, body in misplaced:
        assert client.ask(method, f"/api/v1/{path}", body).status in {401, 403, 404, 422}
    client.close()
