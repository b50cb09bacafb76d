"""`forewarn emulator --netns`: a program with the address built in, in a network of its own."""

import json
import os
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from tests.e2e.conftest import FOREWARN, wait_until
from tests.e2e.forks import Forks
from tests.needs import need, need_namespaces, need_root

READ = (
    "import urllib.request as u; print(u.urlopen(u.Request("
    "'http://169.254.169.254/metadata/scheduledevents?api-version=2020-07-01',"
    "headers={'Metadata': 'true'}), timeout=60).read().decode())"
)
CLIENT = (sys.executable, "-c", READ)
SECONDS = 45

Netns = Callable[..., subprocess.CompletedProcess[str]]
Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture(autouse=True)
def _namespaces() -> None:
    need_namespaces(*(("--net",) if os.getuid() == 0 else ("--user", "--net")))


@pytest.fixture
def _user_namespaces_as_root() -> None:
    need_root("lack a capability, and make a user namespace instead")
    need_namespaces("--user", "--net")
    need("setpriv")


@pytest.fixture
def netns(environment: Mapping[str, str], forks: Forks, tmp_path: Path) -> Netns:
    """Return a function that runs words in a namespace, with temporary files of their own."""

    def run(*words: str, prefix: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
        command = [*prefix, str(FOREWARN), "emulator", "--netns", *words]
        surroundings = {**environment, "TMPDIR": str(tmp_path)}
        if not prefix:
            return forks.run(command, surroundings, SECONDS)
        return subprocess.run(
            command,
            env=surroundings,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )

    return run


def test_command_finds_the_service_at_the_built_in_address(netns: Netns, tmp_path: Path) -> None:
    done = netns("--", *CLIENT)

    assert json.loads(done.stdout) == {"DocumentIncarnation": 0, "Events": []}, done.stderr
    assert "169.254.169.254 is ready for vm-0" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("entry", "vm", "host_name"),
    [
        ('name = "web-0"', "WEB-0", "web-0"),
        ('name = "web-0"\nprofile = { computer_name = "shop0" }', "web-0", "shop0"),
    ],
)
def test_host_name_is_that_of_the_machine(
    netns: Netns, tmp_path: Path, entry: str, vm: str, host_name: str
) -> None:
    fleet = tmp_path / "fleet.toml"
    fleet.write_text(f"[[virtual_machine]]\n{entry}\n", encoding="utf-8")
    before = socket.gethostname()

    done = netns("--vm", vm, "--fleet", str(fleet), "--", "uname", "--nodename")

    assert done.stdout == f"{host_name}\n", done.stderr
    assert socket.gethostname() == before


def test_command_can_restart_its_own_machine(netns: Netns) -> None:
    script = f"{FOREWARN} vm restart web-0 >&2 && {shlex.join(CLIENT)}"

    done = netns("--vm", "web-0", "--", "sh", "-c", script)

    (event,) = json.loads(done.stdout)["Events"]
    assert (event["EventType"], event["Resources"]) == ("Reboot", ["web-0"]), done.stderr


def test_command_sees_its_own_requests_in_the_journal(netns: Netns) -> None:
    script = f"{shlex.join(CLIENT)} >&2 && {FOREWARN} emulator requests -o json"

    done = netns("--vm", "web-0", "--", "sh", "-c", script)

    (entry,) = json.loads(done.stdout)["requests"]
    assert (entry["vm"], entry["status"], entry["document_incarnation"]) == ("web-0", 200, 0)


def test_operator_outside_reaches_the_service(
    environment: Mapping[str, str], tmp_path: Path
) -> None:
    command = [str(FOREWARN), "emulator", "--netns", "--clock", "virtual", "--", "sleep", "600"]
    surroundings = {**environment, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, env=surroundings, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            assert "is ready" in process.stderr.readline()
            words = process.stderr.readline().split()
            where = dict(word.split("=") for word in words if "=" in word)

            listed = subprocess.run(
                [FOREWARN, "vm", "list", "-o", "json"],
                env={**environment, **where},
                capture_output=True,
                text=True,
                timeout=SECONDS,
                check=True,
            )
        finally:
            process.send_signal(signal.SIGTERM)
            status = process.wait(SECONDS)

    assert [vm["name"] for vm in json.loads(listed.stdout)["virtual_machines"]] == ["vm-0"]
    assert status == 128 + signal.SIGTERM
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def start_netns(environment: Mapping[str, str], tmp_path: Path) -> Iterator[Start]:
    """Return a function that starts words in a namespace; they are killed after the test."""
    started: list[subprocess.Popen[str]] = []

    def start(*words: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [FOREWARN, "emulator", "--netns", *words],
            env={**environment, "TMPDIR": str(tmp_path)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        with process:
            pass


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_signal_reaches_the_command(start_netns: Start, tmp_path: Path, number: int) -> None:
    process = start_netns("--", "sh", "-c", "echo $$; exec sleep 600")
    assert process.stdout is not None
    command = int(process.stdout.readline())

    process.send_signal(number)

    assert process.wait(SECONDS) == 128 + number
    with pytest.raises(ProcessLookupError):
        os.kill(command, 0)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_signal_at_the_start_leaves_nothing_behind(
    start_netns: Start, tmp_path: Path, number: int
) -> None:
    process = start_netns("--", "sleep", "600")
    wait_until(lambda: any(tmp_path.iterdir()), "there is no folder", SECONDS, pause=0.001)

    process.send_signal(number)
    _, said = process.communicate(timeout=SECONDS)

    assert process.returncode == 128 + number
    # The interpreter reports an interrupt inside a callback of its own, where it has no effect.
    assert said == "" or said.startswith("Exception ignored in"), said
    assert list(tmp_path.iterdir()) == []


def test_ignored_hang_up_stays_ignored(start_netns: Start) -> None:
    handler = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        process = start_netns("--", "sh", "-c", "echo begun; sleep 1; exit 7")
    finally:
        signal.signal(signal.SIGHUP, handler)
    assert process.stdout is not None
    process.stdout.readline()

    process.send_signal(signal.SIGHUP)

    assert process.wait(SECONDS) == 7


def test_former_spelling_means_the_same(environment: Mapping[str, str]) -> None:
    command = [str(FOREWARN), "emulator", "netns", "--vm", "web-0", "--", "uname", "--nodename"]

    said = subprocess.check_output(command, env=dict(environment), text=True, timeout=SECONDS)

    assert said == "web-0\n"


def test_exit_code_is_that_of_the_command(netns: Netns) -> None:
    assert netns("--", "sh", "-c", "exit 7").returncode == 7


def test_command_that_is_not_there_is_named(netns: Netns) -> None:
    done = netns("--", "/no/such/command")

    assert done.returncode == 127
    assert "/no/such/command cannot be run" in done.stderr


def test_machine_that_is_not_in_the_fleet_is_refused(netns: Netns, tmp_path: Path) -> None:
    fleet = tmp_path / "fleet.toml"
    fleet.write_text('[[virtual_machine]]\nname = "web-0"\n', encoding="utf-8")

    done = netns("--fleet", str(fleet), "--vm", "web-9", "--", *CLIENT)

    assert done.returncode == 2
    assert "web-9" in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (("--clock", "virtual", "--speed", "60"), "speed cannot be used with the virtual clock"),
        (("--speed", "2000000"), "--speed"),
        (("--vm", "\N{GRINNING FACE}"), "--vm: '\N{GRINNING FACE}' is not a valid name"),
    ],
)
def test_wrong_flag_is_named(netns: Netns, flags: tuple[str, ...], problem: str) -> None:
    done = netns(*flags, "--", *CLIENT)

    assert done.returncode == 2
    assert problem in done.stderr
    assert "fleet.toml" not in done.stderr
    assert "Traceback" not in done.stderr


def test_ordinary_user_needs_no_root() -> None:
    # Reading may go on as root's: an interpreter in root's home could not be started otherwise.
    reading = "+dac_read_search,+dac_override"
    user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    capabilities = [f"--inh-caps={reading}", f"--ambient-caps={reading}", "--"]
    prefix = [*user, *capabilities] if os.getuid() == 0 else []
    need(*prefix[:1])
    program = (
        "import encodings.idna, os, socket\n"
        "from forewarn.emulator.netns import enter_network_namespace\n"
        "before = os.getuid()\n"
        "enter_network_namespace('web-0')\n"
        "with socket.create_server(('169.254.169.254', 80)):\n"
        "    socket.create_connection(('169.254.169.254', 80), timeout=60).close()\n"
        "print(before, os.getuid(), socket.gethostname())\n"
    )

    done = subprocess.run(
        [*prefix, sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )

    before, after, name = done.stdout.split() or pytest.fail(done.stderr)
    assert before == after != "0"
    assert name == "web-0"


@pytest.mark.usefixtures("_user_namespaces_as_root")
@pytest.mark.parametrize("missing", ["sys_admin", "net_admin", "net_bind_service"])
def test_root_without_a_capability_takes_a_user_namespace(netns: Netns, missing: str) -> None:
    done = netns("--", *CLIENT, prefix=without(missing))

    assert json.loads(done.stdout) == {"DocumentIncarnation": 0, "Events": []}, done.stderr


@pytest.mark.usefixtures("_user_namespaces_as_root")
def test_missing_capability_is_named(netns: Netns) -> None:
    limit = "/proc/sys/user/max_user_namespaces"
    forbid = f'mount -t proc proc /proc && echo 0 > {limit} && exec "$@"'
    inside = ("unshare", "--user", "--map-root-user", "--mount", "--pid", "--fork")
    prefix = (*inside, "sh", "-c", forbid, "sh", *without("sys_admin"))

    done = netns("--", *CLIENT, prefix=prefix)

    assert done.returncode == 1
    assert "CAP_SYS_ADMIN" in done.stderr
    assert "CAP_NET_ADMIN" not in done.stderr
    assert "become root" not in done.stderr


def without(capability: str) -> tuple[str, ...]:
    return ("setpriv", f"--bounding-set=-{capability}", f"--inh-caps=-{capability}", "--")
