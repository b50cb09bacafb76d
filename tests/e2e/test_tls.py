"""Operators from elsewhere come over TLS, or not at all. Certificates are made here, by openssl."""

import json
import re
import signal
import ssl
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from http.client import HTTPSConnection
from pathlib import Path
from typing import Any

import pytest
from tests.docs.blocks import Block
from tests.e2e.conftest import (
    FOREWARN,
    START_SECONDS,
    Server,
    ServerMaker,
    run_script,
    wait_until,
)
from tests.needs import find_program
from tests.ports import free_port

from forewarn.clocks import SystemClock

CONFIG = """
[ca]
default_ca = ours
[ours]
database = {folder}/index.txt
new_certs_dir = {folder}
rand_serial = yes
default_md = sha256
policy = any
x509_extensions = local
[any]
commonName = supplied
[local]
subjectAltName = IP:127.0.0.1
basicConstraints = critical,CA:TRUE
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
keyUsage = critical,digitalSignature,keyCertSign
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A certificate for 127.0.0.1 that is its own authority, and its key."""

    certificate: Path
    key: Path

    @property
    def flags(self) -> tuple[str, ...]:
        return ("--control-certificate", str(self.certificate), "--control-key", str(self.key))


@pytest.fixture
def make_pair(tmp_path: Path) -> Callable[..., Pair]:
    def make(start: str = "20200101000000Z", end: str = "20990101000000Z") -> Pair:
        folder = tmp_path / f"certificate-{end}"
        folder.mkdir()
        return make_pair_in(folder, start=start, end=end)

    return make


def make_pair_in(
    folder: Path,
    settings: str = CONFIG,
    *,
    start: str = "20200101000000Z",
    end: str = "20990101000000Z",
) -> Pair:
    """Make certificate.pem and key.pem in *folder*."""
    config, key = folder / "openssl.cnf", folder / "key.pem"
    config.write_text(settings.format(folder=folder))
    (folder / "index.txt").touch()
    request, certificate = folder / "request.pem", folder / "certificate.pem"
    _openssl("genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", key)
    _openssl("req", "-new", "-key", key, "-subj", "/CN=test only", "-out", request)
    _openssl(
        "ca", "-batch", "-notext", "-selfsign", "-config", config, "-keyfile", key,
        "-startdate", start, "-enddate", end, "-in", request, "-out", certificate,
    )  # fmt: skip
    return Pair(certificate=certificate, key=key)


def _openssl(*arguments: object) -> None:
    command = [find_program("openssl"), *map(str, arguments)]
    subprocess.run(command, check=True, capture_output=True, timeout=30)


def _ask(server: Server, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command as an operator who knows where the server is and has its state directory."""
    where = {
        "FOREWARN_SERVER": f"https://127.0.0.1:{server.control_port}",
        "FOREWARN_STATE_DIR": str(server.database.parent),
    }
    surroundings = {**server.environment, **where, **variables}
    return run_script(server.forks, [str(FOREWARN), *arguments], surroundings)


def test_operator_comes_over_tls(
    make_server: ServerMaker, make_pair: Callable[..., Pair], blocks: list[Block]
) -> None:
    pair, port = make_pair(), free_port()
    here = {
        "10.0.0.5:8170": f"127.0.0.1:{port}",
        "control.pem": str(pair.certificate),
        "control.key": str(pair.key),
    }
    ((_, _, *flags),) = blocks[0].commands
    server = make_server(*(here.get(word, word) for word in flags))
    server.control_port = port
    server.launch()
    trusted = {"FOREWARN_CA_FILE": str(pair.certificate)}
    wait_until(
        lambda: _ask(server, "clock", "show", **trusted).returncode == 0,
        f"nobody answers over TLS: {server.said()}",
        START_SECONDS,
        pause=0.2,
    )

    by_flag = _ask(server, "vm", "list", "--ca-file", str(pair.certificate))
    untrusted = _ask(server, "vm", "list")
    wrong = _ask(server, "vm", "list", "--ca-file", str(server.fleet))
    elsewhere = f"https://localhost:{server.control_port}"
    misnamed = _ask(server, "vm", "list", **trusted, FOREWARN_SERVER=elsewhere)
    clear = f"http://127.0.0.1:{server.control_port}"
    unencrypted = _ask(server, "vm", "list", FOREWARN_SERVER=clear)

    assert "web-0" in by_flag.stdout
    assert untrusted.returncode == 6
    assert "has a certificate that is not trusted here" in untrusted.stderr
    assert "--ca-file FILE" in untrusted.stderr
    assert misnamed.returncode == 6
    assert "certificate is not valid for 'localhost'" in misnamed.stderr
    assert "--ca-file" not in misnamed.stderr
    assert (wrong.returncode, "is not a valid certificate file" in wrong.stderr) == (2, True)
    assert unencrypted.returncode != 0
    assert server.stop() == 0, server.said()


def test_certificate_that_expires_soon_is_a_finding_until_it_is_renewed(
    make_server: ServerMaker, make_pair: Callable[..., Pair]
) -> None:
    now = SystemClock().now()
    soon = make_pair(end=f"{now + timedelta(days=10):%Y%m%d%H%M%SZ}")
    later = make_pair(end="20980101000000Z")
    server = make_server(*soon.flags)
    server.launch()
    wait_until(lambda: _shown(server) == _pem(soon), "nobody answers over TLS", START_SECONDS)
    trusted = {"FOREWARN_CA_FILE": str(soon.certificate)}

    before = _find_certificate(server, **trusted)
    soon.key.write_bytes(later.key.read_bytes())
    soon.certificate.write_bytes(later.certificate.read_bytes())
    assert server.process is not None
    server.process.send_signal(signal.SIGHUP)
    wait_until(lambda: _shown(server) == _pem(later), "no renewal", START_SECONDS)
    after = _find_certificate(server, **trusted)
    trusting = ssl.create_default_context(cafile=soon.certificate)
    metrics = HTTPSConnection("127.0.0.1", server.control_port, context=trusting, timeout=60)
    metrics.request("GET", "/metrics")
    shown = metrics.getresponse().read().decode()
    metrics.close()

    assert before["verdict"] == "warn"
    assert (
        f"{soon.certificate} expires at {now + timedelta(days=10):%Y-%m-%d}" in before["sentence"]
    )
    assert "systemctl reload forewarn" in before["hint"]
    assert after["verdict"] == "ok"
    expiry = ssl.cert_time_to_seconds("Jan  1 00:00:00 2098 GMT")
    (figure,) = re.findall(
        r"^forewarn_certificate_expiry_timestamp_seconds (\S+)$", shown, re.MULTILINE
    )
    assert float(figure) == expiry
    assert server.stop() == 0, server.said()


def test_command_says_that_the_certificate_of_the_server_has_expired(
    make_server: ServerMaker, make_pair: Callable[..., Pair], tmp_path: Path
) -> None:
    now, expired = SystemClock().now(), tmp_path / "expired.pem"
    pair = make_pair(end=f"{now + timedelta(seconds=20):%Y%m%d%H%M%SZ}")
    expired.write_bytes(pair.certificate.read_bytes())
    server = make_server(*pair.flags)
    server.launch()
    wait_until(lambda: _shown(server) == _pem(pair), "nobody answers over TLS", START_SECONDS)
    wait_until(
        lambda: SystemClock().now() > now + timedelta(seconds=21), "it to expire", START_SECONDS
    )

    asked = _ask(server, "vm", "list", FOREWARN_CA_FILE=str(expired))
    control = f"127.0.0.1:{server.control_port}"
    renewed = make_pair(end="20980101000000Z")
    variables = {
        "FOREWARN_CONTROL": control,
        "FOREWARN_CONTROL_CERTIFICATE": str(renewed.certificate),
        "FOREWARN_CONTROL_KEY": str(renewed.key),
    }
    examined = _ask(server, "doctor", **variables)

    assert f"A forewarn server uses {control}." in examined.stdout
    assert asked.returncode == 6
    assert "has a certificate that has expired" in asked.stderr
    assert "renew it, then on the server: systemctl reload forewarn" in asked.stderr
    assert "--ca-file" not in asked.stderr
    assert server.stop() == 0, server.said()


def _find_certificate(server: Server, **environment: str) -> Any:
    answer = json.loads(_ask(server, "doctor", "--remote", "-o", "json", **environment).stdout)
    (found,) = (each for each in answer["findings"] if each["check"] == "certificate")
    return found


def test_server_in_the_clear_is_said_not_to_speak_tls(start_server: ServerMaker) -> None:
    server = start_server()

    asked = _ask(server, "vm", "list")

    assert (asked.returncode, "does not speak TLS" in asked.stderr) == (6, True), asked.stderr


def test_certificate_that_cannot_be_used_is_refused(
    make_server: ServerMaker, make_pair: Callable[..., Pair], tmp_path: Path
) -> None:
    good = make_pair()
    other = make_pair(end="20980101000000Z")
    expired = make_pair(end="20200102000000Z")
    early = make_pair(start="20970101000000Z", end="20971231000000Z")
    locked = tmp_path / "locked.pem"
    _openssl("pkey", "-in", good.key, "-aes128", "-passout", "pass:secret", "-out", locked)
    text = tmp_path / "text.pem"
    text.write_text("not a certificate")
    broken = tmp_path / "broken.pem"
    broken.write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")

    for certificate, key, sentence in (
        (tmp_path / "none.pem", good.key, "none.pem cannot be read: No such file or directory"),
        (good.certificate, tmp_path, "control_key: "),
        (text, good.key, "is not a PEM file"),
        (good.certificate, other.key, "does not belong to the certificate"),
        (expired.certificate, expired.key, "has expired; renew it"),
        (early.certificate, early.key, "is not valid yet"),
        (good.certificate, locked, "is encrypted"),
        (broken, good.key, "cannot be used"),
    ):
        assert sentence in _refused(make_server, certificate, key)


def _refused(make_server: ServerMaker, certificate: Path, key: Path) -> str:
    pair = Pair(certificate=certificate, key=key)
    done = make_server(*pair.flags).run_to_the_end()
    assert done.returncode == 1, done
    (line,) = done.stderr.splitlines()
    return line


def test_certificate_needs_its_key(make_server: ServerMaker, tmp_path: Path) -> None:
    done = make_server("--control-key", str(tmp_path / "key.pem")).run_to_the_end()

    assert done.returncode == 2
    assert "control_certificate and control_key must be set together" in done.stderr


@pytest.mark.parametrize("address", ["0.0.0.0:0", "[::]:0"])
def test_control_api_is_not_opened_to_the_network_in_the_clear(
    make_server: ServerMaker, address: str
) -> None:
    server = make_server("--control", address)

    done = server.run_to_the_end()

    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert f"The control API on {address} would receive tokens unencrypted" in line
    assert "--control-certificate" in line
    assert "--insecure-control" in line
    assert not server.database.exists()


def test_control_api_is_opened_in_the_clear_if_somebody_insists(make_server: ServerMaker) -> None:
    port = make_server().control_port
    server = make_server("--control", f"0.0.0.0:{port}", "--insecure-control")
    server.control_port = port

    server.start()

    assert server.command("clock", "show")["kind"] == "real"


def test_certificate_is_renewed_on_hangup_without_breaking_connections(
    make_server: ServerMaker, make_pair: Callable[..., Pair]
) -> None:
    first, second = make_pair(), make_pair(end="20980101000000Z")
    server = make_server(*first.flags)
    server.launch()
    wait_until(lambda: _shown(server) == _pem(first), "nobody answers over TLS", START_SECONDS)
    assert server.process is not None
    trusting = ssl.create_default_context(cafile=first.certificate)
    kept = HTTPSConnection("127.0.0.1", server.control_port, context=trusting, timeout=60)
    kept.request("GET", "/healthz")
    kept.getresponse().read()

    first.key.write_bytes(second.key.read_bytes())  # and not its certificate yet
    server.process.send_signal(signal.SIGHUP)
    wait_until(lambda: "certificate_not_renewed" in server.said(), "no reload", START_SECONDS)
    still = _shown(server)
    first.certificate.write_bytes(second.certificate.read_bytes())
    server.process.send_signal(signal.SIGHUP)

    wait_until(lambda: _shown(server) == _pem(second), "no renewal", START_SECONDS)
    assert still != _pem(second)
    kept.request("GET", "/healthz")
    assert kept.getresponse().status == 200
    kept.close()
    assert server.stop() == 0, server.said()


def _pem(pair: Pair) -> str:
    return pair.certificate.read_text()


def _shown(server: Server) -> str | None:
    try:
        return ssl.get_server_certificate(("127.0.0.1", server.control_port), timeout=60)
    except OSError:
        return None
