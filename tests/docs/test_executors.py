"""What the page on executors claims is true today."""

import re
import threading
from collections.abc import Iterator
from contextlib import closing
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.executors.conftest import (
    EVENT,
    HOSTS,
    WEB_0,
    begin,
    is_over,
    make_command,
    make_webhook,
    wait_for,
)
from tests.executors.host_work import WORK, host_order, host_work, make_host_command
from tests.needs import need, need_libvirt

from forewarn.bootstrap.task_records import FOLDER
from forewarn.domain.host_work import HostTaskKind
from forewarn.domain.impact import Impact, ImpactStatus
from forewarn.domain.task import ADOPTABLE, HOST_SILENT_AFTER, OWNER_GRACE, SILENT_AFTER
from forewarn.executors.command import Command
from forewarn.executors.configuration import (
    ByHand,
    CommandTable,
    ExecutorFile,
    HostWorkTable,
    LibvirtTable,
    WebhookTable,
    read_executors,
)
from forewarn.executors.libvirt.hypervisors import Hypervisor
from forewarn.executors.libvirt.marks import NAMESPACE
from forewarn.executors.processes import PLACES, PLACES_OF_HOST
from forewarn.executors.task_input import (
    host_task_input,
    impact_input,
)
from forewarn.executors.webhook import EPOCH, WebhookTarget
from forewarn.host_worker.settings import HostWorkFile
from forewarn.settings_table import ExecutorKind
from forewarn.wording.durations import format_duration

PAGE = Path(__file__).parent.parent.parent / "docs/reference/executors.md"
TEXT = PAGE.read_text(encoding="utf-8")
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def fence(language: str, number: int = 0) -> str:
    return [str(code) for name, code in FENCE.findall(TEXT) if name == language][number]


def program(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)
    return path


def test_executors_of_the_reference_are_those_there_are() -> None:
    tables = re.findall(r"^\| \[?`\[\[(\w+)\]\]`", TEXT, re.MULTILINE)

    assert {*tables, "host_work"} == set(ExecutorFile.model_fields)
    for kind in ExecutorKind:
        assert f"`{kind}`" in TEXT


def test_file_of_the_reference_is_one_and_has_every_key(tmp_path: Path) -> None:
    need("ssh")
    text = fence("toml")
    path = tmp_path / "executors.toml"
    path.write_text(text, encoding="utf-8")
    (tmp_path / "platform.key").write_text("hush", encoding="utf-8")
    program(tmp_path / "maintain", fence("sh"))

    means = read_executors(path, "/usr/bin:/bin").impacts
    assert {type(each) for each in means} == {ByHand, Command, WebhookTarget}
    for key in {*CommandTable.model_fields, *WebhookTable.model_fields}:
        assert re.search(rf"^{key} = ", text, re.MULTILINE), key


def test_libvirt_of_the_reference_has_every_key(tmp_path: Path) -> None:
    need_libvirt()
    text = fence("toml", 1)
    path = tmp_path / "executors.toml"
    path.write_text(text, encoding="utf-8")

    (means,) = read_executors(path, "/usr/bin:/bin").impacts

    assert isinstance(means, Hypervisor)
    for key in LibvirtTable.model_fields:
        assert re.search(rf"^{key} = ", text, re.MULTILINE), key


def test_defaults_of_libvirt_are_those_of_the_reference() -> None:
    said = dict(re.findall(r"^(\w+) = .*; default: (\d+\w)$", fence("toml", 1), re.MULTILINE))
    usual = Hypervisor(uri="qemu:///system")

    assert said == {
        name: format_duration(getattr(usual, name))
        for name in ("timeout", "connect_timeout", "grace")
    }
    assert f"{PLACES} stewards at once, at most {PLACES_OF_HOST}" in TEXT.replace("\n", " ")
    assert NAMESPACE in TEXT


def test_host_work_of_the_reference_is_some_and_has_every_key(tmp_path: Path) -> None:
    need("ssh")
    text = fence("toml", 2)
    path = tmp_path / "executors.toml"
    path.write_text(text, encoding="utf-8")
    (tmp_path / "platform.key").write_text("hush", encoding="utf-8")
    for name in ("patch-host", "host-is-back", "give-back"):
        program(tmp_path / name, "#!/bin/sh\n")

    for work in read_executors(path, "/usr/bin:/bin").host_works:
        assert list(work.executors) == list(HostTaskKind)
    for name, key in HostWorkTable.model_fields.items():
        assert re.search(rf"\b{key.alias or name} = ", text), name


def test_defaults_of_host_work_are_those_of_the_reference() -> None:
    table = HostWorkTable(run=("true",))
    said = dict(re.findall(r"^(\w+) = .*; default: (\d+\w)$", fence("toml", 2), re.MULTILINE))

    assert said == {
        name: format_duration(getattr(table, name))
        for name in (
            "timeout",
            "verify_timeout",
            "verify_within",
            "verify_every",
            "fetch_within",
        )
    }


def test_times_of_owners_are_those_of_the_reference() -> None:
    text = TEXT.replace("\n", " ")

    assert f"not reported to the database for {SILENT_AFTER.seconds} seconds" in text
    assert f"`owner_grace` is {OWNER_GRACE.seconds // 60} minutes by default" in text
    assert f"has not reported for {HOST_SILENT_AFTER.seconds // 60} minutes | running" in text


def test_leader_takes_over_from_the_executors_of_the_reference() -> None:
    rows = re.findall(r"^\| `(\w+)` \| after `owner_grace`, the leader", TEXT, re.MULTILINE)

    assert set(rows) == ADOPTABLE


def test_records_are_where_the_reference_says(tmp_path: Path) -> None:
    executor = make_command(tmp_path, Command(run=("/bin/echo", "hello")))

    begin(executor)
    wait_for(executor, is_over)

    (output,) = tmp_path.rglob("*.output")
    assert output.relative_to(tmp_path) == Path(FOLDER) / EVENT.event_id / "web-0.output"
    assert f"`{FOLDER}/EVENT_ID/VM.output`" in TEXT


def test_file_of_a_host_has_every_key_and_default_in_the_reference(tmp_path: Path) -> None:
    section = TEXT.split("### Work that the host fetches")[1]
    rows = dict(re.findall(r"^\| `(\w+)`(?:, `\w+`)? \| (.*) \|$", section, re.MULTILINE))
    least = {"server": "https://a", "token_file": tmp_path, "run": ("true",)}
    table = HostWorkFile.model_validate(least)

    names = {key.alias or name for name, key in HostWorkFile.model_fields.items()}
    assert {*rows, "log_level"} == names
    defaults = {name: re.findall(r"default: `(\S+)`", said) for name, said in rows.items()}
    assert {name: said for name, (said,) in ((n, s) for n, s in defaults.items() if s)} == {
        "insecure_control": "false",
        "state_dir": str(table.state_dir),
        "timeout": format_duration(table.timeout),
        "restarts_host": "false",
        "verify_timeout": format_duration(table.verify_timeout),
    }


def test_variables_and_headers_of_the_reference_are_those_there_are() -> None:
    rows = re.findall(r"^\| `([A-Z]+_\w+|Forewarn-[\w-]+)` \|", TEXT, re.MULTILINE)
    order = impact_input(EVENT, WEB_0, HOSTS[WEB_0], epoch=1)

    assert set(rows) == {
        *order.environment(),
        *host_task_input(WORK, epoch=1).environment(),
        *order.headers,
        *host_task_input(WORK, epoch=1).headers,
        EPOCH,
        "Forewarn-Signature",
    }


@pytest.mark.parametrize(
    ("answers", "impact"),
    [
        ("exit 0", Impact(status=ImpactStatus.DONE)),
        (
            '[ "$2" != true ]',
            Impact(status=ImpactStatus.FAILED, reason="exit code 1: web-0 does not come back"),
        ),
        (
            "echo no route; exit 255",
            Impact(status=ImpactStatus.FAILED, reason="exit code 255: no route"),
        ),
    ],
)
def test_script_of_the_reference_does_it(tmp_path: Path, answers: str, impact: Impact) -> None:
    program(tmp_path / "ssh", f'#!/bin/sh\necho "$@" >> {tmp_path}/calls\n{answers}\n')
    program(tmp_path / "sleep", "#!/bin/sh\n")
    script = program(tmp_path / "maintain", fence("sh"))
    executor = make_command(tmp_path, Command(run=(str(script), "restart")))
    executor.environment = {"PATH": f"{tmp_path}:/usr/bin:/bin"}

    begin(executor)

    assert wait_for(executor, is_over) == impact
    calls = (tmp_path / "calls").read_text(encoding="utf-8").splitlines()
    assert calls[0] == "root@kvm-0 virsh reboot web-0"


@pytest.mark.parametrize(
    ("number", "answers", "status", "calls"),
    [
        (1, "exit 0", ImpactStatus.DONE, ["apt-get", "test", "cp", "systemctl"]),
        (1, '[ "$2" != test ]', ImpactStatus.DONE, ["apt-get", "test"]),
        (1, '[ "$2" != systemctl ]', ImpactStatus.DONE, ["apt-get", "test", "cp", "systemctl"]),
        (1, '[ "$2" != cp ]', ImpactStatus.FAILED, ["apt-get", "test", "cp"]),
        (1, "echo no route; exit 255", ImpactStatus.FAILED, ["apt-get"]),
        (2, "exit 0", ImpactStatus.DONE, ["ConnectTimeout=10"]),
        (2, "exit 1", ImpactStatus.FAILED, ["ConnectTimeout=10"]),
        (3, "echo 'shut off'", ImpactStatus.DONE, ["virsh", "virsh"]),
        (3, "echo running", ImpactStatus.DONE, ["virsh"]),
        (3, "echo no domain; exit 1", ImpactStatus.FAILED, ["virsh"]),
    ],
)
def test_scripts_for_hosts_of_the_reference_do_it(
    tmp_path: Path, number: int, answers: str, status: ImpactStatus, calls: list[str]
) -> None:
    program(tmp_path / "ssh", f'#!/bin/sh\necho "$2" >> {tmp_path}/calls\n{answers}\n')
    script = program(tmp_path / "script", fence("sh", number))
    command = Command(run=("/usr/bin/env", f"PATH={tmp_path}:/usr/bin:/bin", str(script)))

    with closing(make_host_command(tmp_path, host_work(command))) as runner:
        begin(runner, host_order())
        impact = wait_for(runner, is_over, host_order())

    assert impact.status is status
    assert (tmp_path / "calls").read_text(encoding="utf-8").split() == calls


@pytest.fixture
def url() -> Iterator[str]:
    """The target of the page."""
    names: dict[str, Any] = {"__name__": "page"}
    exec(fence("python"), names)  # noqa: S102 - it is ours
    quiet = type("Quiet", (names["Target"],), {"log_message": lambda *_: None})
    server = ThreadingHTTPServer(("127.0.0.1", 0), quiet)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}/orders"
    server.shutdown()
    server.server_close()
    thread.join(60)


def test_target_of_the_reference_does_it(tmp_path: Path, url: str) -> None:
    executor = make_webhook(tmp_path, WebhookTarget(url=url))

    begin(executor)

    impact = wait_for(executor, is_over)
    executor.close()
    assert impact.status is ImpactStatus.DONE
    assert impact.reason == "Reboot of web-0 on kvm-0"
