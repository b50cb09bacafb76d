"""Whether the control API may be reached from elsewhere, and the certificate it shows there."""

import socket
import ssl
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from forewarn.bootstrap.start import StartError
from forewarn.domain.topology import normalise_address
from forewarn.settings import Settings

# What OpenSSL calls it when a certificate is looked at outside its time.
_NOT_YET_VALID: Final = 9
_EXPIRED: Final = 10


def check_control(settings: Settings, listeners: Iterable[socket.socket]) -> None:
    """Refuse to send tokens over a network in the clear, or to show a certificate nobody takes."""
    is_open = settings.insecure_control or all(map(_is_loopback, listeners))
    if find_certificate(settings) is None and not is_open:
        raise StartError(
            f"The control API on {settings.control} would receive tokens unencrypted. Use "
            "--control-certificate and --control-key, or a loopback address. If the network is "
            "encrypted, use --insecure-control."
        )


class Certificate:
    """A certificate that can be used, with its key, and the *context* that shows it.

    Clients take it until it *expires_at*, or one of its authorities in the same file does.
    """

    def __init__(self, certificate: Path, key: Path) -> None:
        self.path: Final = certificate
        self._key = key
        self.context, self.expires_at = _load(certificate, key)

    def renew(self) -> None:
        """Show what is in the files now, or refuse it and go on with what was there before."""
        _, expires_at = _load(self.path, self._key)
        self.context.load_cert_chain(self.path, self._key)
        self.expires_at = expires_at


def find_certificate(settings: Settings) -> Certificate | None:
    """Return the certificate that *settings* name, if they do, or refuse it."""
    if settings.control_certificate is None or settings.control_key is None:
        return None
    return Certificate(settings.control_certificate, settings.control_key)


def _load(certificate: Path, key: Path) -> tuple[ssl.SSLContext, datetime]:
    """Refuse a certificate and a key that cannot be read, do not match or are out of time."""
    for setting, path in (("control_certificate", certificate), ("control_key", key)):
        _check_readable(setting, path)
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        # Without a password of its own, OpenSSL would ask for one on the terminal.
        serving.load_cert_chain(certificate, key, password="")
    except ssl.SSLError as error:
        raise StartError(_explain(certificate, key, error)) from error
    try:
        trusting = _trusting(certificate)
        shown = _shake_hands(serving, trusting)
    except ssl.SSLCertVerificationError as error:
        problem = {
            _EXPIRED: "has expired; renew it",
            _NOT_YET_VALID: "is not valid yet; check the clock of this machine",
        }.get(error.verify_code, f"would be rejected by clients: {error.verify_message}")
        raise StartError(f"The certificate {certificate} {problem}.") from error
    except ssl.SSLError as error:
        raise StartError(f"The certificate {certificate} cannot be used: {error}.") from error
    ends = (str(each["notAfter"]) for each in (shown, *trusting.get_ca_certs()))
    return serving, datetime.fromtimestamp(min(map(ssl.cert_time_to_seconds, ends)), UTC)


def _check_readable(setting: str, path: Path) -> None:
    try:
        text = path.read_bytes()
    except OSError as error:
        raise StartError(f"{setting}: {path} cannot be read: {error.strerror}.") from error
    if b"-----BEGIN" not in text:
        raise StartError(f"{setting}: {path} is not a PEM file.")


def _explain(certificate: Path, key: Path, error: ssl.SSLError) -> str:
    if error.reason == "KEY_VALUES_MISMATCH":
        return f"The key {key} does not belong to the certificate {certificate}."
    if "ENCRYPTED" in key.read_text(encoding="ascii", errors="replace"):
        return (
            f"The key {key} is encrypted; use a key without a password that only the server can "
            "read."
        )
    return f"{certificate} and {key} cannot be used: {error.reason or error}."


def _trusting(certificate: Path) -> ssl.SSLContext:
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    client.load_verify_locations(certificate)
    return client


def _shake_hands(serving: ssl.SSLContext, client: ssl.SSLContext) -> Mapping[str, object]:
    """Return the certificate as a client that trusts it sees it; nothing leaves the process."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    trusting = client.wrap_bio(to_client, to_server)
    ends = [trusting, serving.wrap_bio(to_server, to_client, server_side=True)]
    while ends:
        for end in tuple(ends):
            try:
                end.do_handshake()
                ends.remove(end)
            except ssl.SSLWantReadError:
                continue
    return trusting.getpeercert() or {}


def _is_loopback(listener: socket.socket) -> bool:
    return ip_address(normalise_address(listener.getsockname()[0])).is_loopback
