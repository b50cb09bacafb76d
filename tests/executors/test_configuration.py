"""The file of executors, and what is wrong with it."""

import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from tests.needs import need_libvirt

from forewarn.domain.host_work import HostTaskKind, HostWorkRule
from forewarn.executors.command import Command
from forewarn.executors.configuration import (
    ByHand,
    FetchedByHost,
    HostWork,
    read_executors,
    read_host_work_rules,
)
from forewarn.executors.libvirt.hypervisors import Hypervisor
from forewarn.executors.task_input import Selection
from forewarn.executors.webhook import WebhookTarget
from forewarn.files.tables import TablesError
from forewarn.protocol.vocabulary import EventType

SEARCH = "/usr/bin:/bin"
RUN = '[[command]]\nrun = ["true"]\n'
HOST_RUN = '[[host_work]]\nrun = ["true"]\n'
FETCHED = '[[host_work]]\nfetched = ["work"]\n'
HOST_HOOK = '[[host_work]]\nurl = "https://hush.example/T0KEN"\n'
KVM = '[[libvirt]]\nuri = "qemu+ssh://root@{host}/system"\n'
HOOK = '[[webhook]]\nurl = "https://hush.example/T0KEN"\n'

Write = Callable[[str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Return a function that writes a file of executors."""

    def write_file(text: str) -> Path:
        path = tmp_path / "executors.toml"
        path.write_text(text, encoding="utf-8")
        return path

    return write_file


def test_file_says_what_to_run_for_what_and_where(write: Write, tmp_path: Path) -> None:
    (tmp_path / "reboot").write_text("#!/bin/sh\n", encoding="utf-8")
    (tmp_path / "reboot").chmod(0o755)
    text = """
[[command]]
event_types = ["Reboot", "Redeploy"]
hosts = ["kvm-*"]
run = ["./reboot", "--gently"]
timeout = "30m"

[[command]]
run = ["sh", "-c", "exit 0"]
"""

    first, second = read_executors(write(text), SEARCH).impacts

    assert isinstance(second, Command)
    assert first == Command(
        run=(str(tmp_path / "reboot"), "--gently"),
        selection=Selection(event_types=(EventType.REBOOT, EventType.REDEPLOY), hosts=("kvm-*",)),
        timeout=timedelta(minutes=30),
    )
    assert second.run[0] in {"/usr/bin/sh", "/bin/sh"}
    assert second.run[1:] == ("-c", "exit 0")
    assert second.timeout == timedelta(hours=1)


def test_file_says_whom_to_post_to(write: Write, tmp_path: Path) -> None:
    (tmp_path / "key").write_text("hush\n", encoding="utf-8")
    text = f'{HOOK}secret_file = "key"\nheaders = {{ X-Token = "1" }}\nrequest_timeout = 2\n'

    (target,) = read_executors(write(text), SEARCH).impacts

    assert target == WebhookTarget(
        url="https://hush.example/T0KEN",
        headers={"X-Token": "1"},
        secret="hush",  # noqa: S106
        request_timeout=2,
    )
    assert "hush" not in repr(target)


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        ("a = = 1\n", 1, "Not valid TOML: "),
        (
            "\npigeon = 1\n",
            2,
            "pigeon: unknown key; known keys: command, webhook, libvirt, manual, host_work.",
        ),
        (
            '[command]\nrun = ["true"]\n',
            1,
            "command: it is not a list; in TOML, write [[command]].",
        ),
        ("[[command]]\n", 1, "run of command 1: it is required."),
        ("[[command]]\nrun = []\n", 2, "run of command 1: it is empty."),
        (RUN + '[[command]]\nrun = "true"\n', 4, "run of command 2: it is not a list."),
        (
            RUN.replace("true", "no-such"),
            2,
            "run of command 1: program not found or not executable: 'no-such'",
        ),
        (
            RUN.replace("true", "./no-such"),
            2,
            "run of command 1: program not found or not executable: './no-such",
        ),
        (
            RUN.replace('"true"', '"true", "\\u0000"'),
            2,
            "item 2 of run of command 1: a command cannot contain",
        ),
        (
            RUN + 'timeout = "soon"\n',
            3,
            "timeout of command 1: invalid duration 'soon'; use 30s",
        ),
        (RUN + 'timeout = "0s"\n', 3, "timeout of command 1: it must be longer than zero."),
        (
            RUN + 'event_types = ["Nap"]\n',
            3,
            "item 1 of event_types of command 1: it must be one of 'Freeze'",
        ),
        (RUN + "event_types = []\n", 3, "event_types of command 1: it is empty; omit it to"),
        (RUN + "hosts = []\n", 3, "hosts of command 1: it is empty; omit it to include all."),
        (RUN + 'hosts = ["a", "b, c"]\n', 3, "item 2 of hosts of command 1: 'b, c' is neither the"),
        (KVM + "to = []\n", 3, "to of libvirt 1: it is empty; omit it to include all."),
        (HOST_RUN + "hosts = []\n", 3, "hosts of host_work 1: it is empty; omit it to include"),
        ("[[libvirt]]\n", 1, "uri of libvirt 1: it is required."),
        (
            KVM.replace("qemu+ssh://", ""),
            2,
            "uri of libvirt 1: 'root@{host}/system' is not a valid",
        ),
        (
            KVM.replace("{host}", "{vm}"),
            2,
            "uri of libvirt 1: 'qemu+ssh://root@{vm}/system' is not",
        ),
        (KVM + "unsafe_migration = true\n", 3, "unsafe_migration of libvirt 1: it needs migrate ="),
        (KVM + 'migrate_uri = "tcp://{host}"\n', 3, "migrate_uri of libvirt 1: it needs migrate"),
        (KVM + 'grace = "0s"\n', 3, "grace of libvirt 1: it must be longer than zero."),
        (
            KVM + 'connect_timeout = "1h"\n',
            3,
            "connect_timeout of libvirt 1: it must be 1s to 10m.",
        ),
        (HOOK.replace("https", "ftp"), 2, "url of webhook 1: the URL must begin"),
        (HOOK.replace("://", "://u:T0KEN/P@"), 2, "url of webhook 1: the host or port is invalid"),
        (
            HOOK + 'headers = { "a b" = "1" }\n',
            3,
            "headers of webhook 1: 'a b' is not a valid header",
        ),
        (HOOK + 'secret = "a"\nsecret_file = "b"\n', 1, "webhook 1: secret and secret_file"),
        (
            HOOK + "request_timeout = 61\n",
            3,
            "request_timeout of webhook 1: it is too high; the maximum is 60",
        ),
        (HOOK + "retries = 1\n", 3, "retries of webhook 1: unknown key."),
        (
            '[host_work]\nrun = ["true"]\n',
            1,
            "host_work: it is not a list; in TOML, write [[host_work]].",
        ),
        (HOST_RUN + "verify = []\n", 3, "verify of host_work 1: it is empty."),
        (HOST_RUN + 'return = "x"\n', 3, "return of host_work 1: it is not a list."),
        (HOST_RUN + 'verify_every = "0s"\n', 3, "verify_every of host_work 1: it must be longer"),
        (
            HOST_RUN + "labels = { a = 1 }\n",
            3,
            "a of labels of host_work 1: it is not text in quotes.",
        ),
        (HOST_RUN + "pigeon = 1\n", 3, "pigeon of host_work 1: unknown key."),
        (HOST_HOOK.replace("https", "ftp"), 2, "url of host_work 1: the URL must begin"),
    ],
)
def test_what_is_wrong_is_refused_with_its_line(
    write: Write, text: str, line: int, problem: str
) -> None:
    path = write(text)

    with pytest.raises(TablesError) as refused:
        read_executors(path, SEARCH)

    said = str(refused.value)
    assert said.startswith(f"{path}:{line}: {problem}")
    assert said.endswith(".")
    assert "hush.example" not in said


@pytest.mark.parametrize(
    ("secret", "problem"),
    [(None, "the secret cannot be read"), (" \n", "the secret file is empty.")],
)
def test_secret_that_is_not_there_is_refused(
    write: Write, tmp_path: Path, secret: str | None, problem: str
) -> None:
    if secret is not None:
        (tmp_path / "key").write_text(secret, encoding="utf-8")
    path = write(HOOK + 'secret_file = "key"\n')

    with pytest.raises(TablesError) as refused:
        read_executors(path, SEARCH)

    assert str(refused.value).startswith(f"{path}:3: secret_file of webhook 1: {problem}")


def test_file_says_where_libvirt_is_and_what_it_may_do(write: Write) -> None:
    need_libvirt()
    text = f"""{KVM}
hosts = ["kvm-*"]
grace = "30s"
migrate = true
migrate_uri = "tcp://{{host}}.storage"
unsafe_migration = true
to = ["kvm-*", "spare"]
ephemeral = ["vdb"]
"""

    (hypervisor,) = read_executors(write(text), SEARCH).impacts

    assert hypervisor == Hypervisor(
        uri="qemu+ssh://root@{host}/system",
        selection=Selection(hosts=("kvm-*",)),
        grace=timedelta(seconds=30),
        migrate=True,
        migrate_uri="tcp://{host}.storage",
        unsafe_migration=True,
        to=("kvm-*", "spare"),
        ephemeral=("vdb",),
    )
    place = hypervisor.place("kvm-7")
    assert (place.uri, place.migrate_uri) == ("qemu+ssh://root@kvm-7/system", "tcp://kvm-7.storage")


def test_libvirt_without_its_package_is_refused_with_the_command_that_installs_it(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "libvirt", None)

    with pytest.raises(TablesError, match=r"pip install 'forewarn\[libvirt\]'"):
        read_executors(write(KVM), SEARCH)


def test_tables_of_all_kinds_are_kept_in_the_order_of_the_file(write: Write) -> None:
    by_hand = '[[manual]]\nevent_types = ["Terminate"]\nlabels = { cluster = "a" }\n'

    means = read_executors(write(HOOK + by_hand + RUN + HOOK), SEARCH).impacts

    assert [type(each) for each in means] == [WebhookTarget, ByHand, Command, WebhookTarget]
    assert means[1].selection == Selection(
        event_types=(EventType.TERMINATE,), labels={"cluster": "a"}
    )


def test_file_has_to_be_there(tmp_path: Path) -> None:
    with pytest.raises(TablesError, match="cannot be read: "):
        read_executors(tmp_path / "nothing", SEARCH)


def test_file_says_what_to_run_on_which_hosts(write: Write) -> None:
    text = """
[[host_work]]
hosts = ["kvm-*"]
labels = { cluster = "a" }
run = ["sh", "patch"]
timeout = "2h"
verify = ["sh", "is-back"]
verify_timeout = "20s"
verify_within = "20m"
verify_every = "5s"
return = ["sh", "give-back"]

[[host_work]]
run = ["true"]
"""
    path = write(text)

    first, second = read_executors(path, SEARCH).host_works

    assert first.rule == HostWorkRule(
        hosts=("kvm-*",),
        labels={"cluster": "a"},
        has_verify=True,
        verify_within=timedelta(minutes=20),
        verify_every=timedelta(seconds=5),
        has_return=True,
    )
    sh = first.executors[HostTaskKind.WORK].run[0]  # type: ignore[union-attr]
    assert first.executors == {
        HostTaskKind.WORK: Command(run=(sh, "patch"), timeout=timedelta(hours=2)),
        HostTaskKind.VERIFY: Command(run=(sh, "is-back"), timeout=timedelta(seconds=20)),
        HostTaskKind.RETURN: Command(run=(sh, "give-back"), timeout=timedelta(hours=2)),
    }
    assert second.rule == HostWorkRule()
    assert list(second.executors) == [HostTaskKind.WORK]
    assert read_host_work_rules(path) == (first.rule, second.rule)


def test_file_says_whom_to_post_to_for_which_hosts(write: Write, tmp_path: Path) -> None:
    (tmp_path / "key").write_text("hush\n", encoding="utf-8")
    more = 'verify_url = "https://hush.example/verify"\nverify_within = "30s"\n'

    path = write(f'{HOST_HOOK}{more}secret_file = "key"\n')

    (work,) = read_executors(path, SEARCH).host_works

    secret = "hush"  # noqa: S105
    assert work == HostWork(
        rule=HostWorkRule(has_verify=True, verify_within=timedelta(seconds=30)),
        executors={
            HostTaskKind.WORK: WebhookTarget(url="https://hush.example/T0KEN", secret=secret),
            HostTaskKind.VERIFY: WebhookTarget(
                url="https://hush.example/verify", secret=secret, timeout=timedelta(seconds=30)
            ),
        },
    )
    assert "hush" not in repr(work)


def test_hosts_that_fetch_their_own_work_are_read(write: Write) -> None:
    text = '[[host_work]]\nhosts = ["kvm-*"]\nfetched = ["work", "verify", "return"]\n'

    (work, quick) = read_executors(
        write(f'{text}verify_within = "1m"\n{FETCHED}fetch_within = "30s"\n'), SEARCH
    ).host_works

    assert work == HostWork(
        rule=HostWorkRule(
            hosts=("kvm-*",),
            has_verify=True,
            verify_within=timedelta(minutes=1),
            has_return=True,
        ),
        executors=dict.fromkeys(HostTaskKind, FetchedByHost(within=timedelta(minutes=10))),
    )
    assert quick == HostWork(
        rule=HostWorkRule(),
        executors={HostTaskKind.WORK: FetchedByHost(within=timedelta(seconds=30))},
    )


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        ("[[host_work]]\n", 1, "host_work 1: write one of run, url and fetched."),
        (HOST_HOOK + 'run = ["true"]\n', 1, "host_work 1: write one of run, url and fetched."),
        (HOST_RUN + 'fetched = ["work"]\n', 1, "host_work 1: write one of run, url and fetched."),
        (
            HOST_RUN + 'fetch_within = "1m"\n',
            3,
            "fetch_within of host_work 1: it cannot be used together with run.",
        ),
        (FETCHED + 'ssh = "a"\n', 3, "ssh of host_work 1: it cannot be used together with fetched"),
        (FETCHED + 'timeout = "1m"\n', 3, "timeout of host_work 1: it cannot be used together"),
        (
            '[[host_work]]\nfetched = ["verify"]\n',
            2,
            'fetched of host_work 1: "work" is required',
        ),
        ('[[host_work]]\nfetched = ["reboot"]\n', 2, "item 1 of fetched of host_work 1: "),
        (FETCHED + 'verify_every = "1m"\n', 3, "verify_every of host_work 1: it needs verify"),
        (HOST_RUN + 'secret = "a"\n', 3, "secret of host_work 1: it cannot be used together w"),
        (HOST_RUN + "request_timeout = 1\n", 3, "request_timeout of host_work 1: it cannot be"),
        (
            HOST_RUN + HOST_RUN + 'verify_url = "http://a"\n',
            5,
            "verify_url of host_work 2: it cannot be used together with run.",
        ),
        (
            HOST_HOOK + 'return = ["true"]\n',
            3,
            "return of host_work 1: it cannot be used together with url.",
        ),
        (HOST_RUN + 'verify_within = "1m"\n', 3, "verify_within of host_work 1: it needs verify"),
        (
            HOST_RUN + 'verify = ["true"]\nverify_within = "1m"\nverify_every = "2m"\n',
            5,
            "verify_every of host_work 1: it is longer than verify_within.",
        ),
        (
            HOST_RUN + 'verify = ["no-such"]\n',
            3,
            "verify of host_work 1: program not found or not executable: 'no-such'",
        ),
        (
            HOST_HOOK + 'secret_file = "no-such"\n',
            3,
            "secret_file of host_work 1: the secret cannot be read",
        ),
    ],
)
def test_host_work_whose_keys_do_not_go_together_is_refused_with_its_line(
    write: Write, text: str, line: int, problem: str
) -> None:
    path = write(text)

    with pytest.raises(TablesError) as refused:
        read_executors(path, SEARCH)

    assert str(refused.value).startswith(f"{path}:{line}: {problem}")
    assert "hush.example" not in str(refused.value)


def test_rules_of_host_work_need_no_programs_but_keys_that_go_together(write: Write) -> None:
    text = HOST_RUN.replace("true", "no-such")

    assert read_host_work_rules(write(text)) == (HostWorkRule(),)
    with pytest.raises(TablesError, match="cannot be used together with run"):
        read_host_work_rules(write(text + 'verify_url = "http://a"\n'))


def test_file_need_not_have_host_work(write: Write) -> None:
    path = write(RUN)

    assert read_executors(path, SEARCH).host_works == ()
    assert read_host_work_rules(path) == ()
