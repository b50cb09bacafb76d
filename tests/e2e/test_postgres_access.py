"""How servers get to a PostgreSQL database: over TLS, and with a password that nobody else sees."""

import shutil
import subprocess
import sys
from collections.abc import Callable, Generator, Mapping
from configparser import ConfigParser
from dataclasses import dataclass
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest
from tests.docs.blocks import Block
from tests.e2e.conftest import START_SECONDS, STOP_SECONDS, wait_until
from tests.e2e.forks import Forks
from tests.e2e.test_secrets import TALKATIVE
from tests.needs import find_program
from tests.ports import free_port
from tests.postgres import USER, Cluster, make_folder, run, run_cluster

PASSWORD = "hunter2"  # noqa: S105
FOREWARN = Path(sys.executable).with_name("forewarn")

RULES = """
hostssl certified all 127.0.0.1/32 cert
hostssl all all 127.0.0.1/32 scram-sha-256
"""

Command = Callable[..., subprocess.CompletedProcess[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Guarded:
    """A server that wants TLS, and a password or a certificate; *folder* has the keys."""

    cluster: Cluster
    folder: Path

    def url(self, database: str = "postgres", password: str = PASSWORD, **options: str) -> str:
        where = f"127.0.0.1:{self.cluster.port}/{database}"
        query = "&".join(f"{name}={value}" for name, value in options.items())
        return f"postgresql://forewarn:{password}@{where}?{query}"


@pytest.fixture(scope="module")
def guarded() -> Generator[Guarded]:
    with make_folder() as folder:
        for name, subject in (("server", "127.0.0.1"), ("client", "forewarn"), ("other", "x")):
            make_certificate(folder, name, subject)
        files = {
            "ssl_cert_file": f"{folder}/server.pem",
            "ssl_key_file": f"{folder}/server.key",
            "ssl_ca_file": f"{folder}/client.pem",
        }
        with run_cluster(ssl="on", **files) as cluster:
            cluster.run_sql(f"ALTER ROLE forewarn PASSWORD '{PASSWORD}'")
            for name in ("certified", "talkative"):
                cluster.run_sql(f"CREATE DATABASE {name}")
            (cluster.folder / "data" / "pg_hba.conf").write_text(RULES)
            run(*cluster.control, "reload")
            yield Guarded(cluster=cluster, folder=folder)


def make_certificate(folder: Path, name: str, subject: str) -> None:
    key = folder / f"{name}.key"
    subprocess.run(
        [
            find_program("openssl"), "req", "-x509", "-newkey", "ec",
            "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
            "-subj", f"/CN={subject}",
            "-keyout", key,
            "-addext", "subjectAltName=IP:127.0.0.1", "-out", folder / f"{name}.pem",
        ],
        check=True,
        capture_output=True,
        timeout=30,
    )  # fmt: skip
    key.chmod(0o600)
    if name == "server":
        shutil.chown(key, USER)


@pytest.fixture
def command(environment: Mapping[str, str], forks: Forks, tmp_path: Path) -> Command:
    def run_command(url: str, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
        surroundings = {**environment, "FOREWARN_DATABASE": url, **more}
        return forks.run([str(FOREWARN), *words], surroundings, START_SECONDS, tmp_path)

    return run_command


def test_certificate_of_the_server_is_verified(guarded: Guarded, command: Command) -> None:
    trusted, other = (f"{guarded.folder}/{name}.pem" for name in ("server", "other"))

    for options in (
        {"sslmode": "require"},
        {"sslmode": "verify-full", "sslrootcert": trusted},
    ):
        done = command(guarded.url(**options), "db", "check")
        assert done.returncode == 0, done.stdout
    refused = command(guarded.url(sslmode="verify-full", sslrootcert=other), "db", "check")
    plain = command(guarded.url(sslmode="disable"), "db", "check")

    assert refused.returncode == plain.returncode == 1
    assert "its TLS certificate is not trusted" in refused.stdout
    assert "set sslrootcert to the CA certificate file" in refused.stdout
    assert "no encryption" in plain.stdout
    assert PASSWORD not in refused.stdout + refused.stderr + plain.stdout + plain.stderr


def test_certificate_takes_the_place_of_a_password(guarded: Guarded, command: Command) -> None:
    def url(name: str) -> str:
        key, certificate = (f"{guarded.folder}/{name}.{end}" for end in ("key", "pem"))
        return guarded.url("certified", "", sslmode="require", sslcert=certificate, sslkey=key)

    well, refused = (command(url(name), "db", "check") for name in ("client", "other"))

    assert well.returncode == 0, well.stdout
    assert refused.returncode == 1


def test_password_is_read_from_the_file_that_the_unit_names(
    guarded: Guarded, command: Command, blocks: list[Block], tmp_path: Path
) -> None:
    (block,) = blocks
    drop_in = ConfigParser()
    drop_in.read_string(block.text)
    variable, _, path = drop_in["Service"]["Environment"].partition("=")
    file = tmp_path / Path(path).name
    file.write_text(f"127.0.0.1:{guarded.cluster.port}:*:forewarn:{PASSWORD}\n", encoding="ascii")
    file.chmod(0o600)
    url = guarded.url().replace(f":{PASSWORD}@", "@")

    refused = command(url, "db", "check")
    well = command(url, "db", "check", **{variable: str(file)})

    assert refused.returncode == 1
    assert well.returncode == 0, well.stdout


def test_start_that_is_refused_does_not_tell_the_password(
    guarded: Guarded, command: Command
) -> None:
    wrong = f"{PASSWORD}-wrong"

    listeners = ("--metadata", "127.0.0.1:0", "--control", "127.0.0.1:0")
    for url in (
        guarded.url(password=wrong),
        guarded.url("nowhere"),
        guarded.url(password=wrong, nonsense="1"),
        guarded.url(password=f"{PASSWORD}%zz"),
        guarded.url().replace("postgresql:", "mysql:"),
    ):
        for flags in ((), ("--database", url)):
            ended = command(url, "serve", *listeners, *flags)
            assert ended.returncode in {1, 2}, ended.stderr
            assert ended.stderr
            assert "Traceback" not in ended.stderr
            assert PASSWORD not in ended.stdout + ended.stderr
            assert ("password on the command line" in ended.stderr) is bool(flags)


def test_server_does_not_tell_the_password(
    guarded: Guarded, command: Command, environment: Mapping[str, str], tmp_path: Path
) -> None:
    url = guarded.url("talkative")
    metadata, control = f"127.0.0.1:{free_port()}", free_port()
    listeners = ("--metadata", metadata, "--control", f"127.0.0.1:{control}")
    log = tmp_path / "log"
    with log.open("wb") as file:
        server = subprocess.Popen(
            [sys.executable, "-c", TALKATIVE, FOREWARN, "serve", *listeners],
            cwd=tmp_path,
            env={**environment, "FOREWARN_DATABASE": url},
            stdout=file,
            stderr=file,
        )
    try:
        wait_until(lambda: _is_ready(control), f"{log} has no server", START_SECONDS)
        asked = (("doctor",), ("config", "show"), ("db", "check"))
        said = [command(url, *words, FOREWARN_METADATA=metadata) for words in asked]
        status = command(url, "status", "-o", "json")
        shown = "".join(_get(control, path) for path in ("/metrics", "/api/openapi.json"))
        command_line = Path(f"/proc/{server.pid}/cmdline").read_text(encoding="utf-8")
    finally:
        server.terminate()
        server.wait(STOP_SECONDS)

    written = log.read_text(encoding="utf-8")
    assert "SELECT" in written, "the log is not talkative enough"
    assert "forewarn" in command_line
    assert all("postgresql://forewarn:***" in each.stdout for each in said), said
    assert "postgresql://127.0.0.1" in status.stdout
    said.append(status)
    for text in (written, shown, command_line, *(each.stdout + each.stderr for each in said)):
        assert PASSWORD not in text


def _get(port: int, path: str) -> str:
    with urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as answer:
        text: str = answer.read().decode()
        return text


def _is_ready(port: int) -> bool:
    try:
        return bool(_get(port, "/readyz"))
    except (URLError, ConnectionError):
        return False
