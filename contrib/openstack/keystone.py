"""How the programs of this folder reach OpenStack: requests, credentials, a token of Keystone v3.

Each request has its own connection and a timeout. Redirects are not followed.
"""

import ipaddress
import json
import os
import shlex
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any, Final
from urllib.parse import SplitResult, urlsplit

_PASSING: Final = frozenset({502, 503, 504})
_LONGEST_ANSWER: Final = 64 * 1024 * 1024


class OpenStackError(Exception):
    """Say why it cannot be done, in a sentence without a full stop."""


class PassingError(OpenStackError):
    """No answer, or one that may be different in a moment."""


class RefusedError(OpenStackError):
    """An answer that says no."""

    def __init__(self, status: int, message: str) -> None:
        self.status = status
        hints = {401: "; check the credentials", 403: "; check the roles of the user"}
        super().__init__(f"OpenStack answers {status}: {message}{hints.get(status, '')}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Transport:
    """How requests are sent."""

    context: ssl.SSLContext
    seconds: float
    allows_http: bool

    def send(
        self, method: str, url: str, headers: Mapping[str, str], body: object = None
    ) -> tuple[Mapping[str, str], Any]:
        """Return the headers and the JSON of an answer that says yes."""
        connection, where = self._connect(url)
        content = None if body is None else json.dumps(body).encode()
        kind = {} if body is None else {"Content-Type": "application/json"}
        try:
            connection.request(
                method, where, content, {"Accept": "application/json", **kind, **headers}
            )
            answer = connection.getresponse()
            said = answer.read(_LONGEST_ANSWER)
        except ssl.SSLCertVerificationError as error:
            why = f'cannot verify the certificate of "{url}": {error.verify_message}'
            raise OpenStackError(f"{why}; name its authority with --ca-file") from error
        except (OSError, HTTPException) as error:
            why = str(error) or type(error).__name__
            raise PassingError(f'no answer from "{url}": {why}') from error
        finally:
            connection.close()
        lowered = {name.lower(): value for name, value in answer.getheaders()}
        return lowered, _read_answer(answer.status, answer.reason, said)

    def _connect(self, url: str) -> tuple[HTTPConnection, str]:
        parts = urlsplit(url)
        if parts.scheme not in {"https", "http"} or not parts.hostname:
            raise OpenStackError(f'"{url}" is not a URL such as https://keystone:5000/v3')
        where = f"{parts.path}?{parts.query}" if parts.query else parts.path
        if parts.scheme == "https":
            host, port = parts.hostname, parts.port
            return HTTPSConnection(host, port, timeout=self.seconds, context=self.context), where
        if not (self.allows_http or _is_loopback(parts)):
            raise OpenStackError(f'"{url}" takes secrets unencrypted; use https or --allow-http')
        return HTTPConnection(parts.hostname, parts.port, timeout=self.seconds), where


def _read_answer(status: int, reason: str, content: bytes) -> Any:
    try:
        answer = json.loads(content) if content else None
    except ValueError:
        if status < 300:
            raise PassingError(f"OpenStack answers {status} without JSON") from None
        answer = None  # a balancer in front of OpenStack answers in HTML
    if 200 <= status < 300:
        return answer
    # {"itemNotFound": {"code": 404, "message": "…"}}, from Keystone {"error": {…}}
    known = next(iter(answer.values()), None) if isinstance(answer, dict) else None
    message = str(known.get("message", reason)) if isinstance(known, dict) else reason
    if status in _PASSING:
        raise PassingError(f"OpenStack answers {status}: {message}")
    raise RefusedError(status, message)


def write_authentication(credentials: Mapping[str, str]) -> dict[str, object]:
    """Return what Keystone is asked with, from an application credential or a password."""
    secret = credentials.get("OS_APPLICATION_CREDENTIAL_SECRET")
    if secret:
        key = {"id": need(credentials, "OS_APPLICATION_CREDENTIAL_ID"), "secret": secret}
        kind = "application_credential"
        return {"auth": {"identity": {"methods": [kind], kind: key}}}
    user: dict[str, object] = {"password": need(credentials, "OS_PASSWORD")}
    user |= _identify(credentials, "OS_USER_ID", "OS_USERNAME", "OS_USER_DOMAIN")
    project = _identify(credentials, "OS_PROJECT_ID", "OS_PROJECT_NAME", "OS_PROJECT_DOMAIN")
    identity = {"methods": ["password"], "password": {"user": user}}
    return {"auth": {"identity": identity, "scope": {"project": project}}}


def _identify(
    credentials: Mapping[str, str], by_id: str, by_name: str, domain: str
) -> dict[str, object]:
    if credentials.get(by_id):
        return {"id": credentials[by_id]}
    if credentials.get(f"{domain}_NAME"):
        return {
            "name": need(credentials, by_name),
            "domain": {"name": credentials[f"{domain}_NAME"]},
        }
    where = {"id": credentials.get(f"{domain}_ID") or "default"}
    return {"name": need(credentials, by_name), "domain": where}


def need(credentials: Mapping[str, str], name: str) -> str:
    if not credentials.get(name):
        raise OpenStackError(f"set {name}, in the environment or in the file of --credentials")
    return credentials[name]


def find_compute(catalog: list[Any], credentials: Mapping[str, str]) -> str:
    """Return where Nova is."""
    region = credentials.get("OS_REGION_NAME")
    interface = credentials.get("OS_INTERFACE", "public").removesuffix("URL")
    for service in catalog:
        for endpoint in service["endpoints"] if service.get("type") == "compute" else ():
            if endpoint["interface"] == interface and region in {None, "", endpoint["region"]}:
                return str(endpoint["url"]).rstrip("/")
    where = f' in region "{region}"' if region else ""
    raise OpenStackError(f"the catalog has no {interface} endpoint of compute{where}")


def read_credentials(path: Path | None) -> dict[str, str]:
    """Return the OS_* variables of the file, or of the environment if there is none."""
    if path is None:
        return {name: value for name, value in os.environ.items() if name.startswith("OS_")}
    try:
        if path.stat().st_mode & 0o007:
            raise OpenStackError(f'all users can read "{path}"; run: chmod o= {path}')
        words = shlex.split(path.read_text(encoding="utf-8"), comments=True)
    except OSError as error:
        raise OpenStackError(f'cannot read the credentials "{path}": {error.strerror}') from error
    except ValueError as error:
        raise OpenStackError(f'cannot read the credentials "{path}": {error}') from error
    pairs = (word.partition("=") for word in words if word.startswith("OS_"))
    return {name: value for name, _, value in pairs}


def _is_loopback(url: SplitResult) -> bool:
    host = url.hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
