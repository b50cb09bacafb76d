"""Who is calling: every way in, and every way that is none."""

import asyncio
import socket
from pathlib import Path

import pytest
from tests.http.metadata.conftest import POLL, Service, compose, read_reply, running, sign

from forewarn.domain.amending import build_topology
from forewarn.domain.names import ScopeId, VmName
from forewarn.domain.topology import Topology, VirtualMachine, standalone
from forewarn.metadata.asgi import HttpScope, MetadataRefusedError
from forewarn.metadata.board import Board
from forewarn.metadata.identity import Identifier, find_peer
from forewarn.protocol.errors import ERROR_ANSWERS, Refusal

WHOAMI = "/metadata/forewarn/v1/whoami"
STRANGER = "127.0.0.99"
SOLO = {"X-Instance-ID": "id-of-solo", "X-Instance-ID-Signature": sign("id-of-solo")}


@pytest.mark.parametrize(
    ("target", "source", "name"),
    [
        (WHOAMI, "127.0.0.10", "web-0"),
        (WHOAMI, "127.0.0.11", "Web-1"),
        (f"/vm/solo{WHOAMI}", "127.0.0.10", "solo"),
        (f"/vm/SOLO{WHOAMI}", STRANGER, "solo"),
        (f"/VM/web-1{WHOAMI}/", STRANGER, "Web-1"),
    ],
)
def test_prefix_and_address_tell_who_is_calling(
    quiet_service: Service, target: str, source: str, name: str
) -> None:
    assert quiet_service.request(target, source=source).json["name"] == name


def test_nobody_gets_404_and_does_not_enable(
    service: Service, capsys: pytest.CaptureFixture[str]
) -> None:
    replies = [service.request(source=STRANGER) for _ in range(3)]

    assert [reply.status for reply in replies] == [404, 404, 404]
    assert replies[0].body == ERROR_ANSWERS[Refusal.NOT_FOUND].body
    assert service.polls == []
    assert capsys.readouterr().out.count(STRANGER) == 1


def test_nobody_gets_503_until_it_is_known_who_is_who(
    service: Service, capsys: pytest.CaptureFixture[str]
) -> None:
    service.board.is_whole = False

    unknown = service.request(source=STRANGER)
    assert (unknown.status, unknown.headers["retry-after"]) == (503, "1")
    assert service.request(source="127.0.0.10").status == 200
    assert capsys.readouterr().out == ""


def test_default_machine_is_for_local_callers_that_are_nobody_else() -> None:
    with running(default_vm="HERE") as service:
        assert service.request(WHOAMI, source=STRANGER).json["name"] == "here"
        assert service.request(WHOAMI, source="127.0.0.10").json["name"] == "web-0"
        assert service.request(POLL, source=STRANGER).status == 200
        assert service.polls == ["here"]


@pytest.mark.parametrize("trusted", [STRANGER, "127.0.0.96/28"])
def test_trusted_proxy_speaks_for_others_if_it_signs(trusted: str) -> None:
    forwarded = {"X-Forwarded-For": "10.0.0.5"}
    forged = SOLO | {"X-Instance-ID-Signature": sign("id-of-solo", "wrong")}
    with running(trusted_proxies=(trusted,)) as service:

        def ask(headers: dict[str, str], source: str = STRANGER) -> tuple[int, str]:
            reply = service.request(WHOAMI, headers=headers, source=source)
            return reply.status, reply.json.get("name", "")

        assert ask(SOLO) == ask(SOLO | forwarded) == (200, "solo")
        assert ask({**SOLO, "X-Instance-ID-Signature": sign("id-of-solo").upper()})[0] == 200
        assert ask(forged) == ask(forged | forwarded) == (403, "")
        assert ask({"X-Instance-ID": "id-of-solo"}) == (403, "")
        assert ask(forwarded) == (400, "")
        assert ask({"X-Instance-ID": "x", "X-Instance-ID-Signature": sign("x")}) == (404, "")
        assert ask({}) == (404, "")
        assert ask(SOLO, source="127.0.0.10") == (200, "web-0")
        assert ask(SOLO | forwarded, source="127.0.0.10") == (400, "")


def test_proxy_says_in_the_head_for_whom_it_speaks() -> None:
    head = compose("GET", WHOAMI, {"Metadata": "true", "Transfer-Encoding": "chunked"})
    trailer = "".join(f"{name}: {value}\r\n" for name, value in SOLO.items()).encode()
    with (
        running(trusted_proxies=(STRANGER,)) as service,
        service.connect(STRANGER) as connection,
    ):
        connection.sendall(head + b"0\r\n" + trailer + b"\r\n")

        assert read_reply(connection).status == 404


@pytest.mark.parametrize("trust_path", [False, True])
@pytest.mark.parametrize("proxy", [STRANGER, "127.0.0.10"])
def test_signed_identity_outranks_path_and_address(proxy: str, *, trust_path: bool) -> None:
    with running(trusted_proxies=(proxy,), trust_path=trust_path, default_vm="here") as service:
        event = service.create(resources=("web-0",))

        def ask(target: str, headers: dict[str, str]) -> tuple[int, str]:
            reply = service.request(target, headers=headers, source=proxy)
            return reply.status, reply.json.get("name", "")

        assert ask(WHOAMI, SOLO) == (200, "solo")
        assert ask(f"/vm/web-0{WHOAMI}", SOLO)[0] == 404
        assert ask(f"/vm/web-0{WHOAMI}", {})[0] == 404
        assert ask(WHOAMI, {})[0] == ask(POLL, {})[0] == 404
        assert service.approve(event, target=f"/vm/web-0{POLL}", source=proxy).status == 404
        assert service.approvers(event) == ()
        assert service.polls == []


@pytest.mark.parametrize("source", ["127.0.0.10", STRANGER, "::1"])
def test_path_says_nothing_where_it_is_not_trusted(source: str) -> None:
    with running(trust_path=False, default_vm="here") as service:
        replies = [service.request(f"/vm/solo{at}", source=source) for at in (WHOAMI, POLL)]

    refusal = (404, ERROR_ANSWERS[Refusal.PATH_UNTRUSTED].body)
    assert [(reply.status, reply.body) for reply in replies] == [refusal, refusal]


@pytest.mark.parametrize("name", ["Forwarded", "Via", "X-Real-IP", "X-Forwarded-Host"])
def test_forwarded_request_cannot_say_in_its_path_who_it_is(
    quiet_service: Service, name: str
) -> None:
    headers = {name: "10.0.0.5"}

    reply = quiet_service.request(f"/vm/solo{WHOAMI}", headers=headers)

    assert (reply.status, reply.body) == (400, ERROR_ANSWERS[Refusal.PATH_FORWARDED].body)
    assert quiet_service.request(WHOAMI, headers=headers).json["name"] == "web-0"


def test_signature_of_somebody_we_do_not_trust_means_nothing(quiet_service: Service) -> None:
    assert quiet_service.request(WHOAMI, headers=SOLO, source=STRANGER).status == 404
    assert quiet_service.request(WHOAMI, headers=SOLO).json["name"] == "web-0"


@pytest.mark.parametrize("target", [POLL, WHOAMI, f"/vm/solo{POLL}", "/metadata/instance"])
def test_forwarded_requests_are_refused(quiet_service: Service, target: str) -> None:
    reply = quiet_service.request(target, headers={"X-Forwarded-For": "10.0.0.5"})

    assert (reply.status, reply.body) == (400, ERROR_ANSWERS[Refusal.FORWARDED].body)


@pytest.mark.parametrize("target", [POLL, WHOAMI, f"/vm/solo{POLL}", "/metadata/instance", "/"])
@pytest.mark.parametrize("origin", ["http://evil.example", "null", ""])
def test_pages_in_browsers_are_refused(quiet_service: Service, target: str, origin: str) -> None:
    reply = quiet_service.request(target, headers={"Origin": origin})

    assert (reply.status, reply.body) == (400, ERROR_ANSWERS[Refusal.ORIGIN].body)


def test_ipv6_is_local_and_mapped_ipv4_is_ipv4(quiet_service: Service) -> None:
    request = compose("GET", f"/vm/solo{WHOAMI}", {"Metadata": "true"})
    with quiet_service.connect("::1") as connection:
        connection.sendall(request)
        assert read_reply(connection).json["name"] == "solo"
    with quiet_service.connect("127.0.0.10", port=quiet_service.port_dual) as connection:
        connection.sendall(compose("GET", WHOAMI, {"Metadata": "true"}))
        assert read_reply(connection).json["name"] == "web-0"


def test_unix_socket_is_local(tmp_path: Path) -> None:
    path = tmp_path / "metadata.sock"
    with running(unix_path=path, default_vm="here") as service:
        for target, name in ((WHOAMI, "here"), (f"/vm/web-0{WHOAMI}", "web-0")):
            with socket.socket(socket.AF_UNIX) as connection:
                connection.connect(str(service.unix_path))
                connection.sendall(compose("GET", target, {"Metadata": "true"}))
                assert read_reply(connection).json["name"] == name
    with running(unix_path=path):
        assert path.is_socket()


@pytest.mark.parametrize(
    ("client", "server", "is_local"),
    [
        (("127.8.8.8", 5), ("127.0.0.1", 80), True),
        (("::1", 5), ("::1", 80), True),
        (("::ffff:127.0.0.1", 5), ("::ffff:127.0.0.1", 80), True),
        (None, ("/run/forewarn.sock", None), True),
        (("10.0.0.5", 5), ("10.0.0.5", 80), True),
        (("::ffff:10.0.0.5", 5), ("::ffff:10.0.0.5", 80), True),
        (("10.0.0.5", 5), ("169.254.169.254", 80), False),
        (("fe80::1%eth0", 5), ("fe80::2%eth0", 80), False),
        (("fe80::1%eth1", 5), ("fe80::1%eth0", 80), False),
        (("fe80::1", 5), ("fe80::1", 80), False),
        (("1270.0.0.1", 5), ("169.254.169.254", 80), False),
        (None, ("169.254.169.254", 80), False),
    ],
)
def test_local_is_who_connects_from_this_machine(
    client: tuple[str, int] | None, server: tuple[str, int | None], *, is_local: bool
) -> None:
    assert find_peer(client, server).is_local is is_local


def test_remote_caller_is_never_the_default_machine() -> None:
    identity = Identifier(
        board_with(VirtualMachine(name=VmName("a"), scope_id=SCOPE)), default_vm="a"
    )

    assert identity.identify(scope_of("/metadata", *REMOTE), {}).vm is None


def test_trusted_path_names_remote_callers_too() -> None:
    vm = VirtualMachine(name=VmName("a"), scope_id=SCOPE)
    identity = Identifier(board_with(vm), trust_path=True)

    caller = identity.identify(scope_of("/vm/a/metadata", *REMOTE), {})

    assert (caller.vm, caller.path) == (vm, "/metadata")


def test_without_a_secret_no_signature_is_valid() -> None:
    identity = Identifier(
        board_with(VirtualMachine(name=VmName("a"), scope_id=SCOPE, vm_id="id-of-a")),
        trusted_proxies=("10.0.0.5",),
    )
    signature = sign("id-of-a", "").encode()
    headers = {b"x-instance-id": b"id-of-a", b"x-instance-id-signature": signature}

    with pytest.raises(MetadataRefusedError) as refused:
        identity.identify(scope_of("/metadata", *REMOTE), headers)

    assert refused.value.refusal is Refusal.SIGNATURE_INVALID
    assert identity.read_claim(None, headers).signed_id is None


@pytest.mark.parametrize("spelling", ["fd00::a", "fd00:0:0::a", "FD00::A", "fd00::a%eth0"])
def test_address_is_found_in_any_spelling(spelling: str) -> None:
    vm = VirtualMachine(name=VmName("a"), scope_id=SCOPE, addresses=("FD00:0::A",))
    identity = Identifier(board_with(vm))

    caller = identity.identify(scope_of("/", (spelling, 5), ("fd00::1", 80)), {})

    assert caller.vm == vm


@pytest.mark.parametrize("caller", ["fe80::a", "fe80::a%eth0", "fe80::a%eth1"])
def test_link_local_address_is_nobodys(caller: str) -> None:
    vm = VirtualMachine(name=VmName("a"), scope_id=SCOPE, addresses=("fe80::a%eth0", "fd00::a"))
    board = Board()
    topology = Topology(virtual_machines={vm.name: vm}, scopes={}, hosts={})  # of an old database
    board.put_up({}, topology)

    caller_of = Identifier(board).identify(scope_of("/", (caller, 5), ("fe80::1", 80)), {})

    assert caller_of.vm is None
    assert board.vm_at("fd00::a") is vm


def test_log_of_strangers_is_bounded(capsys: pytest.CaptureFixture[str]) -> None:
    identity = Identifier(Board())

    for number in range(11_000):
        identity.note_stranger(f"address {number}")

    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 10_001
    assert "no_longer_logged" in lines[-1]


SCOPE = ScopeId("virtual-machine/a")
REMOTE = (("10.0.0.5", 5), ("10.0.0.1", 80))


def board_with(vm: VirtualMachine) -> Board:
    board = Board()
    topology = build_topology(scopes=(standalone(VmName("a")),), virtual_machines=(vm,))
    board.put_up({}, topology)
    return board


def scope_of(
    path: str, client: tuple[str, int] | None, server: tuple[str, int | None]
) -> HttpScope:
    return {
        "type": "http",
        "method": "GET",
        "path": path,
        "query_string": b"",
        "headers": [],
        "client": client,
        "server": server,
        "extensions": {
            "connection": {
                "reset": lambda: None,
                "close": lambda: None,
                "lost": asyncio.Event(),
                "impatient": asyncio.Event(),
            }
        },
    }
