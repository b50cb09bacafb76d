"""Replicas are replaced by those of the next release one by one, and no poll fails meanwhile."""

import re
import shutil
import subprocess
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from tests.e2e.conftest import ANSWER_SECONDS, Server, ServerMaker, wait_until
from tests.e2e.replicas import Crowd, Trio, make_replicas
from tests.needs import find_program
from tests.next_release import NEXT_REVISION, add_migration

import forewarn
from forewarn.storage.schema import HEAD

pytestmark = pytest.mark.timeout(300)

NEXT_VERSION = "99.0.0"
VMS = ("web-0", "web-1", "web-2", "solo-0", "solo-1")

BALANCER = """
defaults
  mode http
  timeout connect 5s
  timeout client 30s
  timeout server 30s
  timeout check 10s
  option httpchk GET /readyz
  option redispatch 1
  retries 3
  retry-on conn-failure empty-response
  default-server check inter 100ms fall 1 rise 1
listen metadata
  bind 127.0.0.1:{front.metadata_port}
  http-response set-header X-Replica %s
{servers}
"""


@contextmanager
def balance(front: Server, servers: list[Server], folder: Path) -> Generator[None]:
    """Have HAProxy pass on what comes to the metadata endpoint of *front*."""
    program = find_program("haproxy")
    lines = "\n".join(
        f"  server replica-{place} 127.0.0.1:{each.metadata_port} port {each.control_port}"
        for place, each in enumerate(servers)
    )
    file = folder / "haproxy.cfg"
    file.write_text(BALANCER.format(front=front, servers=lines), encoding="ascii")
    with front.log.open("wb") as log:
        process = subprocess.Popen([program, "-db", "-f", str(file)], stdout=log, stderr=log)
    try:
        wait_until(lambda: answers(front), "there is no balancer", ANSWER_SECONDS)
        yield
    finally:
        process.terminate()
        process.wait(ANSWER_SECONDS)


def answers(server: Server) -> bool:
    try:
        return server.poll("web-0").status == 200
    except OSError:
        return False


def make_next_release(folder: Path) -> Mapping[str, str]:
    """Make a copy of this release with one migration more; return the environment it runs in."""
    package = Path(forewarn.__file__).parent
    copy = folder / "next" / "forewarn"
    shutil.copytree(package, copy, ignore=shutil.ignore_patterns("__pycache__"))
    add_migration(copy / "storage" / "migrations")
    change(copy / "__init__.py", r'__version__ = ".*"', f'__version__ = "{NEXT_VERSION}"')
    schema = copy / "storage" / "schema.py"
    change(schema, rf'"{HEAD}",?\)', f'"{HEAD}", "{NEXT_REVISION}")')
    return {"PYTHONPATH": str(copy.parent)}


def change(file: Path, old: str, new: str) -> None:
    text, number = re.subn(old, new, file.read_text(encoding="utf-8"))
    assert number == 1, file
    file.write_text(text, encoding="utf-8")


def version(server: Server) -> str:
    """Return which release it says it is."""
    answer = server.operate("GET", "server")
    assert answer.status == 200, answer
    return str(answer.json()["version"])


def run_an_event(trio: Trio) -> None:
    """Announce one on each replica; see it through on the next one."""
    others = (*trio.servers[1:], trio.servers[0])
    for server, other, vm in zip(trio.servers, others, VMS[2:], strict=True):
        (event,) = server.create("Freeze", vm)
        other.wait_for(event["event_id"], "Completed", 2 * ANSWER_SECONDS)


def test_next_release_takes_over_one_replica_after_the_other_without_a_failed_poll(
    make_server: ServerMaker, postgres_url: str, tmp_path: Path
) -> None:
    flags = ("--executor", "simulated", "--speed", "600")
    trio = make_replicas(make_server, postgres_url, tmp_path, *flags)
    for server in trio.servers:
        server.start()
    front = make_server()
    crowd = Crowd(Trio(postgres_url, [front] * 3), VMS)
    later = make_next_release(tmp_path)

    with balance(front, trio.servers, tmp_path), crowd.polling():
        run_an_event(trio)
        for server in trio.servers:
            assert server.stop() == 0, server.said()
            server.environment = {**server.environment, **later}
            server.start()
            run_an_event(trio)
            if server is trio.servers[0]:
                # One of this release that starts anew finds the schema of the next.
                trio.servers[1].restart()
                assert version(trio.servers[1]) == forewarn.__version__

    assert {version(server) for server in trio.servers} == {NEXT_VERSION}
    assert crowd.polls
    assert crowd.approvals
    with psycopg.connect(postgres_url) as connection:
        look = "SELECT version_num FROM alembic_version UNION SELECT DISTINCT version FROM replicas"
        found = {row[0] for row in connection.execute(look)}
    assert found == {NEXT_REVISION, NEXT_VERSION}
