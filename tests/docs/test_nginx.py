"""The way through nginx that "Use TLS" and "Use the console" describe."""

import os
import ssl
import subprocess
from collections.abc import Mapping
from http.client import HTTPConnection, HTTPResponse, HTTPSConnection
from pathlib import Path

from tests.docs.blocks import Block, change
from tests.e2e.conftest import START_SECONDS, Server, wait_until
from tests.e2e.test_postgres_access import make_certificate
from tests.needs import find_program
from tests.ports import free_port

NAME = "forewarn.example.com"


def test_operators_come_through_nginx(tmp_path: Path, blocks: list[Block]) -> None:
    nginx = find_program("nginx")
    of_console, of_tls, configuration = blocks
    ((_, _, *flags),) = of_console.commands
    ((_, _, *same),) = of_tls.commands
    assert (same, flags) == (["--fleet", "fleet.toml", *flags], ["--control-host", NAME])
    (tmp_path / "fleet.toml").write_text('[[virtual_machine]]\nname = "web-0"\n')
    make_certificate(tmp_path, "control", "test only")
    server = Server(
        database=tmp_path / "forewarn.db",
        fleet=tmp_path / "fleet.toml",
        flags=tuple(flags),
        environment={"PATH": os.defpath, "HOME": str(tmp_path)},
        log=tmp_path / "server.log",
    )
    plain, secure = free_port(), free_port()
    file = tmp_path / "nginx.conf"
    here = {
        "listen 80;": f"listen 127.0.0.1:{plain};",
        "listen 443 ssl;": f"listen 127.0.0.1:{secure} ssl;",
        "127.0.0.1:8170": f"127.0.0.1:{server.control_port}",
        "/etc/forewarn/": f"{tmp_path}/",
    }
    file.write_text(complete(configuration.text, here, tmp_path))
    command = [nginx, "-p", str(tmp_path), "-c", str(file)]

    server.start()
    with subprocess.Popen([*command, "-g", "daemon off;"], stderr=subprocess.DEVNULL) as proxy:
        try:
            wait_until(lambda: answers(secure, tmp_path), "nginx does not answer", START_SECONDS)
            token = {"Authorization": f"Bearer {(tmp_path / 'admin.token').read_text().strip()}"}
            listed = ask(secure, "/api/v1/virtual-machines", tmp_path, token)
            fleet = ask(secure, "/api/v1/fleet", tmp_path, token, body=b" " * 2**21)
            metrics = ask(secure, "/metrics", tmp_path)
            moved = ask(plain, "/", None)
        finally:
            proxy.terminate()
            server.kill()
    assert fleet.status != 413
    assert (listed.status, metrics.status, moved.status) == (200, 401, 301)
    assert moved.headers["Location"] == f"https://{NAME}/"


def complete(text: str, here: Mapping[str, str], folder: Path) -> str:
    """Return a whole configuration, which writes only to *folder*, with *text* as on the page."""
    assert all(old in text for old in here), text
    text = change(text, here)
    scratch = "".join(
        f"{each}_temp_path {folder}/{each};\n"
        for each in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    return (
        f"pid {folder}/nginx.pid;\nerror_log {folder}/error.log;\nevents {{}}\n"
        f"http {{\naccess_log off;\n{scratch}{text}}}\n"
    )


def answers(port: int, folder: Path) -> bool:
    try:
        return ask(port, "/healthz", folder).status == 200
    except OSError:
        return False


def ask(
    port: int,
    path: str,
    folder: Path | None,
    headers: dict[str, str] | None = None,
    body: bytes | None = None,
) -> HTTPResponse:
    """Return the answer to a request that names the host of the page."""
    if folder is None:
        connection = HTTPConnection("127.0.0.1", port, timeout=60)
    else:
        context = ssl.create_default_context(cafile=str(folder / "control.pem"))
        context.check_hostname = False
        connection = HTTPSConnection("127.0.0.1", port, timeout=60, context=context)
    method = "POST" if body else "GET"
    connection.request(method, path, body, headers={"Host": NAME, **(headers or {})})
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return answer
