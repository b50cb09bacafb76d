"""What is looked at on this machine: files, disk, database and addresses."""

import errno
import os
import shutil
import socket
import ssl
import tempfile
from collections.abc import Callable, Iterator
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from forewarn.cli.examination.findings import is_open_to_others
from forewarn.cli.settings import find_control_url
from forewarn.domain.finding import Finding, FindingVerdict, doubtful, fine, wrong
from forewarn.environment import ADMIN_TOKEN_FILE, CONTROL_URL_FILE
from forewarn.protocol.errors import ERROR_ANSWERS, Refusal
from forewarn.settings import Settings
from forewarn.transport.requests import ServerReply, ServerRequest, TransportError, send
from forewarn.wording.addresses import TcpAddress, UnixAddress, parse_address

MOUNTS: Final = Path("/proc/self/mounts")
LITTLE_SPACE: Final = 1024**3
"""So many bytes are worth a warning."""
NO_SPACE: Final = 16 * 1024**2
"""With less than this the next busy hour may fill the disk."""

_ELSEWHERE: Final = ("nfs", "cifs", "smb", "ceph", "glusterfs", "lustre", "fuse.sshfs", "afs")
_TIMEOUT: Final = 2.0
_UNTRUSTED: Final = ERROR_ANSWERS[Refusal.PATH_UNTRUSTED].body


def examine_machine(settings: Settings, *, mounts: Path = MOUNTS) -> Iterator[Finding]:
    """Look at everything a server with *settings* needs here."""
    yield (state := _state_directory(settings.state_directory))
    yield from _token_file(settings.state_directory / ADMIN_TOKEN_FILE)
    if settings.is_shared:
        if state.verdict is FindingVerdict.OK:
            yield _space(settings.state_directory.absolute())
        yield from _shared_database(settings)
    else:
        yield _disk(settings.database_path.absolute().parent, mounts)
        yield _space(settings.database_path.absolute().parent)
        yield _database(settings)
    for address in settings.metadata:
        yield from _metadata_address(address)
        yield _listener("metadata port", address, is_ours=_is_metadata)
    yield _callers(settings)
    yield _listener("control port", settings.control, is_ours=_control_asker(settings))


def _state_directory(directory: Path) -> Finding:
    check, where = "state directory", directory.absolute()
    if not where.is_dir():
        hint = f"try: mkdir -p {where}"
        return wrong(check, f"{where} does not exist.", hint)
    try:
        with tempfile.TemporaryFile(dir=where) as file:
            file.write(b"x")  # a full disk still takes an empty file
    except OSError as error:
        hint = f"free space on the disk, repair it, or give the server permission to write {where}"
        return wrong(check, f"{where} cannot be written: {error.strerror}.", hint)
    return fine(check, f"{where} can be written.")


def _token_file(path: Path) -> Iterator[Finding]:
    try:
        is_open = is_open_to_others(path)
    except OSError:
        return  # the first start makes it
    if is_open:
        sentence = f"Other users on this machine can read {path}, which grants full access."
        yield wrong("admin token", sentence, f"try: chmod 600 {path}")
    else:
        yield fine("admin token", f"Only its owner can read {path}.")


def _disk(directory: Path, mounts: Path) -> Finding:
    kind = _file_system_of(directory, mounts)
    if kind is not None and kind.startswith(_ELSEWHERE):
        sentence = f"{directory} is on {kind}; SQLite needs a local disk."
        return wrong("local disk", sentence, "set FOREWARN_DATABASE to a file on a local disk")
    return fine("local disk", f"{directory} is on {kind or 'a disk of unknown type'}.")


def _file_system_of(directory: Path, mounts: Path) -> str | None:
    """Return the kind of the file system that is mounted nearest above *directory*."""
    try:
        lines = mounts.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None  # not Linux
    resolved = directory.resolve()
    above = {
        Path(place.replace("\\040", " ")): kind for _, place, kind, *_ in map(str.split, lines)
    }
    return next((above[each] for each in (resolved, *resolved.parents) if each in above), None)


def _space(directory: Path) -> Finding:
    check = "disk space"
    try:
        free = shutil.disk_usage(directory).free
    except OSError as error:
        return wrong(check, f"{directory}: {error.strerror}.", f"try: mkdir -p {directory}")
    sentence = f"{free // 1024**2:,} MiB are free in {directory}."
    hint = f"try: df -h {directory}"
    if free < NO_SPACE:
        return wrong(check, sentence, hint)
    return doubtful(check, sentence, hint) if free < LITTLE_SPACE else fine(check, sentence)


def _shared_database(settings: Settings) -> Iterator[Finding]:
    # It needs the server install.
    from forewarn.cli.examination.database import examine_database  # noqa: PLC0415

    return examine_database(settings)


def _database(settings: Settings) -> Finding:
    # They need the server install.
    from forewarn.storage.errors import DatabaseError  # noqa: PLC0415
    from forewarn.storage.schema import HEAD, check_file, find_schema  # noqa: PLC0415

    check, path = "database", settings.database_path
    if not path.exists():
        return fine(check, f"{path} does not exist yet; forewarn serve creates it.")
    try:
        check_file(path)
        schema = find_schema(path)
        schema.require_usable(path)
    except DatabaseError as error:
        return wrong(check, str(error), "try: forewarn config show --effective")
    if not schema.is_current:
        sentence = f"{path} is intact, but has the schema of an older release."
        return doubtful(check, sentence, f"try: forewarn db upgrade --database {settings.database}")
    if is_open_to_others(path):
        sentence = f"{path} is intact, but other users on this machine can read it."
        return doubtful(check, sentence, f"try: chmod 600 {path}*")
    origin = "that of this release" if schema.revision == HEAD else "which this release can use"
    return fine(check, f"{path} is intact and has schema {schema.revision}, {origin}.")


def _metadata_address(address: str) -> Iterator[Finding]:
    """Look for the address of a metadata listener on the interfaces of this machine."""
    where = parse_address(address)
    if not isinstance(where, TcpAddress) or not _is_particular(where.host):
        return
    check = "metadata address"
    if _problem_with_binding(TcpAddress(where.host, 0)) == errno.EADDRNOTAVAIL:
        hint = f"try: ip address add {where.host} dev INTERFACE"
        yield wrong(check, f"No interface of this machine has the address {where.host}.", hint)
    else:
        yield fine(check, f"An interface of this machine has the address {where.host}.")


def _callers(settings: Settings) -> Finding:
    """Say by what the metadata endpoint tells virtual machines apart."""
    check = "callers"
    if _trusts_path(settings):
        sentence = "VMs are identified by /vm/NAME in the path, so any caller can be any VM."
        if all(map(_is_on_this_machine, settings.metadata)):
            return fine(check, sentence)
        return doubtful(check, sentence, "remove trust_path unless you trust every caller")
    trusted = ["source IP"]
    if settings.trusted_proxies:
        trusted.append(f"headers signed by {', '.join(settings.trusted_proxies)}")
    if settings.default_vm is not None:
        trusted.append(f"other local callers are {settings.default_vm}")
    return fine(check, f"VMs are identified by {'; '.join(trusted)}.")


def _trusts_path(settings: Settings) -> bool:
    """Ask the server that runs here, which may have been started with other flags."""
    for where in map(parse_address, settings.metadata):
        if isinstance(where, UnixAddress):
            continue
        # Without the right to use the port nobody can tell whether it is in use.
        is_used = _problem_with_binding(where) in {errno.EADDRINUSE, errno.EACCES}
        if is_used and _is_metadata(where):
            answer = _ask(f"http://{_reachable(where)}/vm/doctor/metadata/versions")
            return answer is not None and answer.content != _UNTRUSTED
    return settings.trust_path


def _is_on_this_machine(address: str) -> bool:
    where = parse_address(address)
    if isinstance(where, UnixAddress):
        return True
    try:
        return ip_address(where.host).is_loopback
    except ValueError:
        return where.host == "localhost"


def _listener(check: str, address: str, *, is_ours: Callable[[TcpAddress], bool]) -> Finding:
    where = parse_address(address)
    if isinstance(where, UnixAddress):
        return _unix_listener(check, where.path)
    problem = _problem_with_binding(where)
    if problem is None:
        return fine(check, f"{address} is free.")
    if problem == errno.EADDRINUSE:
        if is_ours(where):
            return fine(check, f"A forewarn server uses {address}.")
        hint = f"try: ss -ltnp 'sport = :{where.port}'"
        return wrong(check, f"Another program listens on {address}.", hint)
    hint = "try: forewarn config show --effective"
    return wrong(check, f"Cannot listen on {address}: {os.strerror(problem)}.", hint)


def _unix_listener(check: str, path: Path) -> Finding:
    if path.absolute().parent.is_dir() and os.access(path.absolute().parent, os.W_OK):
        return fine(check, f"{path} can be created.")
    hint = f"try: mkdir -p {path.absolute().parent}"
    return wrong(check, f"{path} cannot be created in its directory.", hint)


def _problem_with_binding(where: TcpAddress) -> int | None:
    family = socket.AF_INET6 if ":" in where.host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        if os.name == "posix":
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((where.host, where.port))
            probe.listen()
        except OSError as error:
            return error.errno if isinstance(error.errno, int) else errno.EINVAL
    return None


def _is_particular(host: str) -> bool:
    try:
        address = ip_address(host)
    except ValueError:
        return False
    return not (address.is_loopback or address.is_unspecified)


def _is_metadata(where: TcpAddress) -> bool:
    from forewarn.metadata.http import SERVER  # noqa: PLC0415 - needs the server install

    # It may not know this machine, and answers nevertheless.
    answer = _ask(f"http://{_reachable(where)}/metadata/versions")
    return answer is not None and answer.headers.get("server") == SERVER


def _control_asker(settings: Settings) -> Callable[[TcpAddress], bool]:
    certificate = settings.control_certificate
    scheme = "http" if certificate is None else "https"

    def is_control(where: TcpAddress) -> bool:
        url = f"{scheme}://{_reachable(where)}"
        # It may still show a certificate that has expired or was replaced.
        if find_control_url(settings.state_directory / CONTROL_URL_FILE) == url:
            return True
        answer = _ask(f"{url}/healthz", certificate)
        return answer is not None and '"status"' in answer.text

    return is_control


def _ask(url: str, certificate: Path | None = None) -> ServerReply | None:
    try:
        trust = None if certificate is None else _trust_only(certificate)
        headers = {"Metadata": "true"}
        request = ServerRequest(
            method="GET", url=url, headers=headers, patience=_TIMEOUT, trust=trust
        )
        return send(request)
    except (OSError, TransportError):
        return None


def _trust_only(certificate: Path) -> ssl.SSLContext:
    # It is asked by its address here, and whoever signed it does not matter.
    context = ssl.create_default_context(cafile=certificate)
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context


def _reachable(where: TcpAddress) -> str:
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(where.host, where.host)  # noqa: S104
    return f"[{host}]:{where.port}" if ":" in host else f"{host}:{where.port}"
